//! Draining a queue whose calls run on a runtime beside the test, or under a lease in it. Each test has a database of its own: on
//! MariaDB the claims of leases in parallel tests may wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::prelude::*;
use queueable::testing::{self, TestQueue};
use queueable::{AsyncCalls, CallFuture, HandlerResult, Lease, Message, Outcome, Queueable, Status};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::shop::{Document, Email, Shop, document_queue, documents, emails};
use crate::db::Conn;

fn enqueue(shop: &mut Shop, titles: &[&str]) {
    let documents: Vec<_> = titles.iter().map(|title| (documents::title.eq(*title), Document::due_now())).collect();
    diesel::insert_into(documents::table).values(documents).execute(&mut shop.connection).unwrap();
}

#[test]
fn all_calls_that_a_turn_begins_are_settled_although_they_end_one_after_the_other() {
    let mut shop = Shop::alone();
    enqueue(&mut shop, &["one", "two", "three"]);
    let runtime = Runtime::new().unwrap();
    let (applied, seen) = watch::channel(0);
    let begun = Arc::new(AtomicUsize::new(0));
    let calls = AsyncCalls::of(
        move |_: &Document, _: &Lease| -> CallFuture<'_, ()> {
            let (mut seen, before) = (seen.clone(), begun.fetch_add(1, Ordering::SeqCst));
            // Each answers when the one before it is applied.
            Box::pin(async move {
                seen.wait_for(|applied| *applied >= before).await?;
                Ok(())
            })
        },
        move |_: &Document, (): &(), _: &mut Message<'_, Conn>| -> HandlerResult {
            applied.send_modify(|applied| *applied += 1);
            Ok(Outcome::Done)
        },
    );
    let drained = Document::drain_one(&mut shop.connection, &calls.runtime(runtime.handle().clone())).unwrap();
    assert_eq!((drained.succeeded(), drained.attempts.len()), (3, 3), "{drained}");
    let left = documents::table.filter(document_queue::status.ne(Status::Success)).count();
    assert_eq!(left.get_result::<i64>(&mut shop.connection), Ok(0));
}

#[test]
fn a_drain_on_the_thread_that_would_run_the_calls_is_refused_in_words() {
    let mut shop = Shop::alone();
    enqueue(&mut shop, &["one"]);
    // Nothing drives it, as while a plain `#[tokio::test]` waits for a drain.
    let runtime = Builder::new_current_thread().build().unwrap();
    let calls = AsyncCalls::of(
        |_: &Document, _: &Lease| -> CallFuture<'_, ()> { Box::pin(async { Ok(()) }) },
        |_: &Document, (): &(), _: &mut Message<'_, Conn>| -> HandlerResult { Ok(Outcome::Done) },
    );
    let drained = Document::drain(&mut shop.connection, &calls.runtime(runtime.handle().clone()));
    let error = drained.unwrap_err().to_string();
    assert!(
        error.starts_with("a drain is blocking the tokio runtime that has to run the async calls of Document"),
        "{error}"
    );
    assert!(error.contains("multi_thread"), "{error}");
    assert_eq!(Document::queue().due().count(&mut shop.connection).unwrap(), 1, "nothing was claimed");
}

#[test]
fn what_an_answer_enqueues_is_told_of_its_own_row() {
    let mut shop = Shop::alone();
    enqueue(&mut shop, &["one", "two", "three", "four"]);
    let send = |_: &Email, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let render = (
        |_: &Document, _: &Lease| Ok(()),
        |document: &Document, (): &(), message: &mut Message<'_, Conn>| {
            if document.title == "two" {
                let email = (emails::payment_id.eq(2), Email::due_now());
                diesel::insert_into(emails::table).values(email).execute(message.connection())?;
            }
            Ok(Outcome::Done)
        },
    );
    let drain = testing::on(&mut shop.connection).serve::<Document>(&render).unwrap().serve::<Email>(&send).unwrap();
    let drained = drain.drain().unwrap();
    let of_documents = drained.attempts.iter().filter(|attempt| attempt.entity == "Document");
    let told: Vec<_> = of_documents.map(|attempt| attempt.enqueued.concat()).collect();
    assert_eq!(told, ["", "Email", "", ""], "{drained}");
}
