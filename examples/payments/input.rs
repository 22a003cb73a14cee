//! Reads the file with the payments. All of it is checked before anything is enqueued.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::bank::NewPayment;

const COLUMNS: [&str; 2] = ["company_id", "amount_cents"];

/// Reads all payments of a CSV file; the error names the first line that is wrong and what is expected there.
pub(crate) fn read(file: &Path) -> Result<Vec<NewPayment>> {
    let name = file.display();
    let bytes = fs::read(file).with_context(|| format!("cannot open the input file {name}"))?;
    let text = str::from_utf8(&bytes).map_err(|error| {
        let line = 1 + newlines(&bytes[..error.valid_up_to()]);
        anyhow!("line {line} of {name}: expected UTF-8, found other bytes")
    })?;
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        // Fields are counted here, for a better message.
        .flexible(true)
        .from_reader(text.as_bytes());
    let header = reader.headers()?;
    if *header != COLUMNS[..] {
        let found: Vec<_> = header.iter().collect();
        bail!("line 1 of {name}: expected the header `{}`, found `{}`", COLUMNS.join(","), found.join(","));
    }
    let mut total: i64 = 0;
    let mut payments = Vec::new();
    for record in reader.records() {
        let record = record?;
        let payment = parse(&record)
            .and_then(|payment| {
                let amount = payment.amount_cents.saturating_abs();
                total = total.checked_add(amount).context("the amounts add up to more than 64 bits can hold")?;
                Ok(payment)
            })
            .with_context(|| format!("line {} of {name}", line_of(&record, text)))?;
        payments.push(payment);
    }
    ensure!(!payments.is_empty(), "{name} holds no payment, expected lines such as `3345,1250` after the header");
    Ok(payments)
}

/// The line of a record: its position is the end of the record before, and empty lines may follow there.
fn line_of(record: &csv::StringRecord, text: &str) -> u64 {
    let Some(position) = record.position() else { return 0 };
    let rest = &text.as_bytes()[usize::try_from(position.byte()).unwrap_or(text.len()).min(text.len())..];
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    position.line() + newlines(&rest[..empty])
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
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
