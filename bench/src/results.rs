//! The results: samples, their medians, and the tables.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use contestant::Backend;
use serde::Serialize;

use crate::limits::REFERENCE;

/// One measured number.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) workload: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) contestant: String,
    pub(crate) guarantee: &'static str,
    /// The circumstances, such as the number of workers.
    pub(crate) case: String,
    /// The unit of the number.
    pub(crate) unit: &'static str,
    pub(crate) repeat: usize,
    pub(crate) value: f64,
    /// The reference's value from right before, if the options ask for it.
    pub(crate) beside: Option<f64>,
}

/// All results so far.
#[derive(Debug, Default)]
pub(crate) struct Results {
    samples: Vec<Sample>,
    failures: Vec<String>,
}

impl Results {
    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Notes a measurement that failed.
    pub(crate) fn add_failure(&mut self, failure: String) {
        self.failures.push(failure);
    }

    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Divides each case of a workload by the first case of the same repeat, and adds the shares under their own unit.
    pub(crate) fn add_shares(&mut self, workload: &str, unit: &'static str) {
        let samples: Vec<&Sample> = self.samples.iter().filter(|sample| sample.workload == workload).collect();
        let Some(base) = samples.first().map(|sample| &sample.case) else { return };
        let base_of = |sample: &Sample| {
            let same = |other: &&&Sample| {
                (&other.contestant, other.backend, other.repeat, &other.case)
                    == (&sample.contestant, sample.backend, sample.repeat, base)
            };
            samples.iter().find(same).map(|other| other.value)
        };
        let others = samples.iter().filter(|sample| sample.case != *base);
        let share = |sample: &&Sample| {
            let value = sample.value / base_of(sample)?;
            Some(Sample { unit, value, beside: None, ..(*sample).clone() })
        };
        let shares: Vec<Sample> = others.filter_map(share).collect();
        self.samples.extend(shares);
    }

    /// The tables of a workload on a database: one for each unit.
    pub(crate) fn tables(&self, workload: &str, backend: Backend) -> Vec<Tabulated> {
        let of_it = |sample: &&Sample| sample.workload == workload && sample.backend == backend.name();
        let samples: Vec<&Sample> = self.samples.iter().filter(of_it).collect();
        let mut units = Vec::new();
        for sample in &samples {
            if !units.contains(&sample.unit) {
                units.push(sample.unit);
            }
        }
        let of_unit = |unit| samples.iter().copied().filter(|sample| sample.unit == unit).collect::<Vec<_>>();
        units.into_iter().map(|unit| Tabulated::new(workload, backend, unit, &of_unit(unit))).collect()
    }

    /// Writes every sample into a file.
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let path = directory.join("samples.csv");
        let mut writer = csv::Writer::from_writer(File::create(&path)?);
        for sample in &self.samples {
            writer.serialize(sample)?;
        }
        writer.flush()?;
        Ok(path)
    }
}

/// A table: contestants below each other, cases beside each other.
pub(crate) struct Tabulated {
    pub(crate) title: String,
    pub(crate) cases: Vec<String>,
    pub(crate) lines: Vec<Line>,
}

/// One contestant's line of a table.
pub(crate) struct Line {
    pub(crate) contestant: String,
    pub(crate) guarantee: &'static str,
    /// For each case the median, and the median of the ratios to the reference of the same repeat.
    pub(crate) cells: Vec<Option<(f64, Option<f64>)>>,
}

/// For each repeat its value, and the reference's value from right before.
type Repeats = BTreeMap<usize, (f64, Option<f64>)>;

impl Tabulated {
    fn new(workload: &str, backend: Backend, unit: &str, samples: &[&Sample]) -> Self {
        let mut cases: Vec<String> = Vec::new();
        let mut values: BTreeMap<(&str, &str), Repeats> = BTreeMap::new();
        let mut who: Vec<(&str, &'static str)> = Vec::new();
        for sample in samples {
            if !cases.contains(&sample.case) {
                cases.push(sample.case.clone());
            }
            if !who.contains(&(&sample.contestant, sample.guarantee)) {
                who.push((&sample.contestant, sample.guarantee));
            }
            values
                .entry((&sample.contestant, &sample.case))
                .or_default()
                .insert(sample.repeat, (sample.value, sample.beside));
        }
        // A share is a ratio already.
        let has_ratios = !unit.starts_with("share");
        let cell = |contestant: &str, case: &str| {
            let own = values.get(&(contestant, case))?;
            let reference = values.get(&(REFERENCE, case)).filter(|_| has_ratios);
            let ratio = |(repeat, (value, beside)): (&usize, &(f64, Option<f64>))| {
                Some(value / beside.or_else(|| Some(reference?.get(repeat)?.0))?)
            };
            let ratios: Vec<f64> = own.iter().filter_map(ratio).collect();
            let ratio = if ratios.is_empty() { None } else { Some(median(ratios)) };
            Some((median(own.values().map(|(value, _)| *value).collect()), ratio))
        };
        let lines = who
            .into_iter()
            .map(|(contestant, guarantee)| Line {
                contestant: contestant.to_owned(),
                guarantee,
                cells: cases.iter().map(|case| cell(contestant, case)).collect(),
            })
            .collect();
        Tabulated { title: format!("{workload}, {}: {unit}", backend.name()), cases, lines }
    }

    /// The table as Markdown: a number, and in brackets its ratio to the reference.
    pub(crate) fn markdown(&self) -> String {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        let heads = ["contestant", "guarantee"].into_iter().map(str::to_owned).chain(self.cases.iter().cloned());
        table.set_header(heads);
        for line in &self.lines {
            let cells = line.cells.iter().map(|cell| match cell {
                Some((value, Some(ratio))) => format!("{} ({ratio:.2})", legible(*value)),
                Some((value, None)) => legible(*value),
                None => "-".to_owned(),
            });
            table.add_row([line.contestant.clone(), line.guarantee.to_owned()].into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n\n{table}", self.title)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// A number with as many digits as are significant.
pub(crate) fn legible(value: f64) -> String {
    match value {
        1000.0.. => {
            let thousands = format!("{:.0}", value);
            let (before, last) = thousands.split_at(thousands.len() - 3);
            if before.len() > 3 {
                let (millions, before) = before.split_at(before.len() - 3);
                return format!("{millions} {before} {last}");
            }
            format!("{before} {last}")
        }
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
