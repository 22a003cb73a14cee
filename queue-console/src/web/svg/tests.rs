//! Tests of charts.

use std::time::Duration;

use chrono::DateTime;
use queueable::report::Interval;

use super::chart::sum;
use super::times::line;
use super::*;

const HOSTILE: &str = "\"><script>alert(1)</script>\u{202e}' onload='x";

fn chart<'a>(title: &'a str, periods: &'a [Period]) -> Chart<'a> {
    Chart { id: "c", title, counted: "attempts", interval: Interval::Hour, periods }
}

fn hours(outcomes: &[[i64; 5]]) -> Vec<Period> {
    let start = DateTime::from_timestamp(1_772_366_400, 0).expect("it is in the range");
    let time = |seconds| Some(Duration::from_secs(seconds));
    let took = Percentiles { p50: time(2), p95: time(9) };
    let period = |(at, outcomes): (usize, &[i64; 5])| Period {
        start: start + Duration::from_secs(3_600 * at as u64),
        outcomes: *outcomes,
        took: if sum(outcomes) > 0 { took } else { Percentiles::default() },
        waited: Percentiles::default(),
    };
    outcomes.iter().enumerate().map(period).collect()
}

/// All that charts write, of data of many kinds.
fn everything() -> Vec<String> {
    let data: [&[[i64; 5]]; 5] = [
        &[],
        &[[0; 5]],
        &[[1, 0, 0, 0, 0]],
        &[[1_000_000, 2, 3, 4, 1], [0; 5], [7, 7, 7, 7, 7]],
        &[[i64::MAX; 5], [i64::MIN, -1, 0, 1, i64::MAX]],
    ];
    let mut all = Vec::new();
    for title in ["Attempts", HOSTILE] {
        for data in data {
            let periods = hours(data);
            let chart = chart(title, &periods);
            let sides: Vec<Vec<i64>> = [0, 4].map(|of| data.iter().map(|of_all| of_all[of]).collect()).into();
            all.push(chart.outcomes().into_string());
            all.push(chart.times(|period| period.took).into_string());
            all.push(chart.times(|period| period.waited).into_string());
            all.push(spark(&sides[0], &sides[1], title).into_string());
        }
    }
    all
}

#[test]
fn nothing_of_it_is_refused_by_the_policy() {
    for text in everything() {
        let tags = text.split('<').filter_map(|tag| tag.split_once('>')).map(|(tag, _)| tag);
        for tag in tags {
            // What is between quotes is a value, whatever it says.
            let names: String = tag.split('"').step_by(2).collect();
            assert!(!names.contains("style") && !names.contains(" on"), "{tag}");
        }
    }
}

#[test]
fn hostile_titles_are_texts() {
    for text in everything() {
        assert!(!text.contains("<script") && !text.contains('\u{202e}'), "{text}");
    }
}

#[test]
fn all_numbers_are_numbers() {
    for text in everything() {
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn a_chart_without_data_says_so() {
    let text = chart("Waits", &[]).times(|period| period.waited).into_string();
    assert!(text.contains("nothing to show") && !text.contains("<svg"), "{text}");
}

#[test]
fn a_chart_says_its_numbers_in_words_and_in_a_table() {
    let periods = hours(&[[1_200, 0, 0, 3, 1]]);
    let text = chart("Attempts", &periods).outcomes().into_string();
    assert!(text.contains("1,200 succeeded, 3 will be retried, 1 failed"), "{text}");
    assert!(!text.contains("went on"), "{text}");
    assert!(text.contains(r#"<th scope="row">2026-03-01 12:00</th><td class="number">1,200</td>"#), "{text}");
    let text = chart("Durations", &periods).times(|period| period.took).into_string();
    assert!(text.contains("median up to 2s, 95th percentile up to 9s"), "{text}");
}

#[test]
fn one_failure_among_a_million_is_seen() {
    let periods = hours(&[[1_000_000, 0, 0, 0, 1]]);
    let text = chart("Attempts", &periods).outcomes().into_string();
    assert!(text.contains(r#"<rect class="failed""#) && text.contains(r#"height="3""#), "{text}");
}

#[test]
fn a_line_has_a_gap_where_nothing_is_known() {
    assert_eq!(line(&[(0, 1.0, 2.0), (1, 3.0, 4.04), (3, 5.0, 6.0)]), "M1 2L3 4M5 6");
    assert_eq!(line(&[]), "");
}

#[test]
fn a_spark_says_its_numbers() {
    let text = spark(&[1, 0, 40], &[0, 2, 0], "mails, the last hour").into_string();
    assert!(text.contains("mails, the last hour: 41 succeeded, at most 40 at a time; 2 failed"), "{text}");
    let (up, down) = ("M8 18v-18h3V18z", "M4 18v8h3V18z");
    assert!(text.contains(up) && text.contains(down), "{text}");
}
