//! The trace context to which the span of an attempt is linked. The library depends on no version of OpenTelemetry: the application
//! says how to read a context, and how to link to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use tracing::Span;

use crate::error::panic_text;

/// The target of the attempts' spans, for filters.
pub(super) const SPAN_TARGET: &str = "queueable::attempt";

/// Tells whether attempts have spans with links.
pub(crate) fn makes_links() -> bool {
    CONTEXT.get().is_some() && tracing::span_enabled!(target: SPAN_TARGET, tracing::Level::INFO)
}

/// How the application reads a trace context, and links to it.
struct TraceContext {
    current: Box<ReadsContext>,
    link: Box<LinksTo>,
}

type ReadsContext = dyn Fn() -> Option<String> + Send + Sync;

type LinksTo = dyn Fn(&Span, &str) + Send + Sync;

static CONTEXT: OnceLock<TraceContext> = OnceLock::new();

/// Says how this process reads and links trace contexts, for the column of `#[queue(traceparent)]`. Call it once, when the
/// subscriber is installed; later calls change nothing, and return `false`.
///
/// `current` returns the context of the caller as the header `traceparent` of the
/// [W3C](https://www.w3.org/TR/trace-context/#traceparent-header) has it, such as
/// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`, and `None` without one. `link` links the span of an attempt to the
/// context in which its row was enqueued. A text that is no `traceparent` is never passed on.
///
/// Without this call [`traced`](crate::Queueable::traced) writes null, and no span has a link. With `tracing-opentelemetry`:
///
/// ```ignore
/// queueable::set_trace_context(
///     || {
///         let mut headers = HashMap::new();
///         TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
///         headers.remove("traceparent")
///     },
///     |span, traceparent| {
///         let headers = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
///         span.add_link(TraceContextPropagator::new().extract(&headers).span().span_context().clone());
///     },
/// );
/// ```
pub fn set_trace_context(
    current: impl Fn() -> Option<String> + Send + Sync + 'static,
    link: impl Fn(&Span, &str) + Send + Sync + 'static,
) -> bool {
    CONTEXT.set(TraceContext { current: Box::new(current), link: Box::new(link) }).is_ok()
}

/// Returns the context in which the caller runs.
pub(crate) fn current_context() -> Option<String> {
    let context = CONTEXT.get()?;
    let current = catch_unwind(AssertUnwindSafe(|| (context.current)())).unwrap_or_else(|panic| {
        tracing::warn!("reading the trace context panicked: {}", panic_text(panic));
        None
    });
    current.filter(|current| is_traceparent(current))
}

/// Links a span to a context, if the text is one: anybody may have written it.
pub(super) fn link(span: &Span, traceparent: &str) {
    let Some(context) = CONTEXT.get().filter(|_| is_traceparent(traceparent)) else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (context.link)(span, traceparent))) {
        tracing::warn!("linking to a trace context panicked: {}", panic_text(panic));
    }
}

/// Tells whether a text is a `traceparent` of version 00 (W3C Trace Context, section 3.2.2).
fn is_traceparent(text: &str) -> bool {
    let is_hex =
        |part: &str, length| part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |part: &str, length| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    match *text.split('-').take(5).collect::<Vec<_>>() {
        ["00", trace, parent, flags] => is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_known_and_nothing_else_is() {
        assert!(is_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        for other in [
            "",
            "00",
            "0af7651916cd43dd8448eb211c80319c",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-<script>",
        ] {
            assert!(!is_traceparent(other), "{other}");
        }
    }
}
