//! The benchmark runs, and says what it has measured.

use std::process::Command;

#[test]
fn a_quick_run_leaves_a_sample_of_everybody_chosen() {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["drain", "--quick", "--backend", "sqlite", "--workers", "2", "--contestants", "queueable", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("| naive") && said.contains("(1.00)") && !said.contains("not measured"), "{said}");

    let samples: Vec<csv::StringRecord> =
        csv::Reader::from_path(out.path().join("samples.csv")).unwrap().into_records().map(Result::unwrap).collect();
    for backend in ["sqlite-full", "sqlite-normal"] {
        for contestant in ["naive", "queueable"] {
            let rates = samples
                .iter()
                .filter(|sample| (&sample[1], &sample[2], &sample[5]) == (backend, contestant, "messages per second"));
            let rates: Vec<f64> = rates.map(|sample| sample[7].parse().unwrap()).collect();
            assert!(rates.len() == 1 && rates[0] > 0.0, "{backend}, {contestant}: {rates:?}");
        }
    }
}
