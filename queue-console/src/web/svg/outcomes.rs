//! How many attempts have ended in each period, by their outcome: bars of patterns.

use maud::{Markup, html};

use super::chart::{BOTTOM, Chart, HEIGHT, Period, px, sample, sum};
use super::ticks::Ticks;
use crate::shown::number;

/// A few failures among a million rows are seen, too.
const LEAST_BAR: f64 = 3.0;

/// What an attempt has come to. They are stacked in this order, from the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    WentOn,
    Otherwise,
    Retried,
    Failed,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 5] =
        [Outcome::Succeeded, Outcome::WentOn, Outcome::Otherwise, Outcome::Retried, Outcome::Failed];

    fn name(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::WentOn => "went on",
            Outcome::Otherwise => "ended otherwise",
            Outcome::Retried => "will be retried",
            Outcome::Failed => "failed",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::WentOn => "on",
            Outcome::Otherwise => "otherwise",
            Outcome::Retried => "retried",
            Outcome::Failed => "failed",
        }
    }

    /// The lines of its pattern, in a square of eight; an outcome without lines is filled.
    fn lines(self) -> &'static str {
        match self {
            Outcome::Succeeded => "",
            Outcome::WentOn => "M0 2H8M0 6H8",
            Outcome::Otherwise => "M1 2H3M5 6H7",
            Outcome::Retried => "M-1 9L9 -1M-1 1L1 -1M7 9L9 7",
            Outcome::Failed => "M-1 9L9 -1M-1 -1L9 9",
        }
    }
}

impl Chart<'_> {
    /// Shows how many attempts have ended, by their outcome.
    pub(crate) fn outcomes(&self) -> Markup {
        let totals =
            Outcome::ALL.map(|outcome| sum(self.periods.iter().map(|period| &period.outcomes[outcome as usize])));
        let shown = |outcome: &Outcome| {
            totals[*outcome as usize] > 0 || matches!(outcome, Outcome::Succeeded | Outcome::Failed)
        };
        let shown: Vec<Outcome> = Outcome::ALL.into_iter().filter(shown).collect();
        let in_words = |of: &dyn Fn(Outcome) -> i64| {
            let words = shown.iter().map(|outcome| format!("{} {}", number(of(*outcome)), outcome.name()));
            words.collect::<Vec<_>>().join(", ")
        };
        let most = self.periods.iter().map(|period| sum(&period.outcomes)).max().unwrap_or(0);
        let ticks = Ticks::of_rows(most);
        let drawn = html! {
            defs { @for outcome in &shown { (self.pattern(*outcome)) } }
            @for (at, period) in self.periods.iter().enumerate() {
                @if sum(&period.outcomes) > 0 {
                    g {
                        title { (self.time(period)) ": " (in_words(&|outcome| period.outcomes[outcome as usize])) }
                        (self.bar(at, period, ticks.top()))
                    }
                }
            }
        };
        let legend = html! { @for outcome in &shown { li { (sample(&self.block(*outcome, (1.0, 1.0), (26.0, 12.0)))) (outcome.name()) } } };
        let rows: Vec<_> = self.periods.iter().filter(|period| sum(&period.outcomes) > 0).collect();
        let table = html! {
            thead { tr { th scope="col" { "From (UTC)" } @for outcome in &shown { th.number scope="col" { (outcome.name()) } } } }
            tbody { @for period in &rows { tr {
                th scope="row" { (self.time(period)) }
                @for outcome in &shown { td.number { (number(period.outcomes[*outcome as usize])) } }
            } } }
            tfoot { tr { th scope="row" { "in all" } @for outcome in &shown { td.number { (number(totals[*outcome as usize])) } } } }
        };
        let words = in_words(&|outcome| totals[outcome as usize]);
        self.figure(&words, (&self.field(&ticks, self.counted, &drawn), &legend), &table)
    }

    fn bar(&self, at: usize, period: &Period, top: f64) -> Markup {
        let width = self.slot() * 0.8;
        let mut bottom = HEIGHT - BOTTOM;
        let mut block = |outcome: Outcome| {
            let rows = period.outcomes[outcome as usize];
            let height = (HEIGHT - BOTTOM - self.y(rows as f64, top)).max(LEAST_BAR);
            (rows > 0).then(|| {
                bottom -= height;
                self.block(outcome, (self.x(at) + self.slot() * 0.1, bottom), (width, height))
            })
        };
        let blocks = Outcome::ALL.map(&mut block);
        html! { @for block in blocks.into_iter().flatten() { (block) } }
    }

    fn block(&self, outcome: Outcome, (x, y): (f64, f64), (width, height): (f64, f64)) -> Markup {
        let fill = match outcome.lines() {
            "" => "currentColor".to_owned(),
            _ => format!("url(#{}-{})", self.id, outcome.class()),
        };
        html! {
            rect class=(outcome.class()) x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) fill=(fill) stroke="currentColor" {}
        }
    }

    fn pattern(&self, outcome: Outcome) -> Markup {
        html! { @if !outcome.lines().is_empty() {
            pattern id={ (self.id) "-" (outcome.class()) } width="8" height="8" patternUnits="userSpaceOnUse" {
                rect.ground width="8" height="8" fill="currentColor" {}
                path class=(outcome.class()) d=(outcome.lines()) stroke="currentColor" stroke-width="2" fill="none" {}
            }
        } }
    }
}
