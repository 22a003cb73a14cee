//! Reads the file with the payments. All of it is checked before anything is enqueued.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::bank::NewPayment;

const COLUMNS: [&str; 2] = ["company_id", "amount_cents"];

/// Reads all payments of a CSV file; the error names the first line that is wrong and what is expected there.
pub(crate) fn read(file: &Path) -> Result<Vec<NewPayment>> {
    let name = file.display();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        // Counted here, for a better message.
        .flexible(true)
        .from_path(file)
        .with_context(|| format!("cannot open the input file {name}"))?;
    let header = reader.headers().with_context(|| format!("cannot read the input file {name}"))?;
    if header != &COLUMNS[..] {
        let found: Vec<_> = header.iter().collect();
        bail!("line 1 of {name}: expected the header `{}`, found `{}`", COLUMNS.join(","), found.join(","));
    }
    let mut total: i64 = 0;
    let mut payments = Vec::new();
    for record in reader.records() {
        let record = record.with_context(|| format!("cannot read the input file {name}"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let payment = parse(&record).with_context(|| format!("line {line} of {name}"))?;
        total = total
            .checked_add(payment.amount_cents.saturating_abs())
            .with_context(|| format!("line {line} of {name}: the amounts add up to more than 64 bits can hold"))?;
        payments.push(payment);
    }
    ensure!(!payments.is_empty(), "{name} holds no payment, expected lines such as `3345,1250` after the header");
    Ok(payments)
}

fn parse(record: &csv::StringRecord) -> Result<NewPayment> {
    ensure!(record.len() == COLUMNS.len(), "expected 2 fields such as `3345,1250`, found {}", record.len());
    let number = |column: usize, expected: &str| -> Result<i64> {
        let found = &record[column];
        found.parse().ok().with_context(|| format!("{} is `{found}`, expected {expected}", COLUMNS[column]))
    };
    Ok(NewPayment {
        company_id: number(0, "a company's number such as `3345`")?,
        amount_cents: number(1, "a whole number of cents such as `1250`")?,
    })
}
