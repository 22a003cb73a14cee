//! What the application decides about the page.

use std::sync::Arc;

use axum::http::request::Parts as Request;
use axum::response::{IntoResponse, Response};

type Authorize = Arc<dyn Fn(&Request) -> Result<Visitor, Box<Response>> + Send + Sync>;
type Link = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// The settings of the page, for [`Console::page`](crate::Console::page).
///
/// By default the page changes nothing, and answers only to browsers on the same machine.
///
/// # Examples
///
/// ```
/// use axum::http::StatusCode;
/// use queueable_console::{Page, Visitor};
///
/// /// The proxy in front of the application has signed the person in, and names them in a header.
/// fn page(page: Page) -> Page {
///     page.allow_changes().hosts(["queues.example.org"]).authorize(|request| {
///         let user = request.headers.get("x-forwarded-user").and_then(|name| name.to_str().ok());
///         user.map(Visitor::new).ok_or(StatusCode::FORBIDDEN)
///     })
/// }
/// # page(Page::default());
/// ```
#[derive(Clone, Default)]
#[must_use = "the settings do nothing by themselves"]
pub struct Page {
    pub(super) changes: bool,
    pub(super) authorize: Option<Authorize>,
    pub(super) hosts: Vec<String>,
    pub(super) link: Option<Link>,
}

impl Page {
    /// Lets people change rows, pauses and limits, unless [the visitor](Visitor::read_only) may not. The default is to show only.
    /// The command `serve` ignores this, and follows `--allow-changes`.
    pub fn allow_changes(self) -> Self {
        Page { changes: true, ..self }
    }

    /// Names the person who asks, or answers instead of the page: with a status such as `StatusCode::FORBIDDEN`, a status with headers,
    /// or a redirect to a login.
    ///
    /// Without it the page answers only to requests that come from the same machine, under a loopback name, and not through a proxy.
    pub fn authorize<R: IntoResponse>(
        self,
        authorize: impl Fn(&Request) -> Result<Visitor, R> + Send + Sync + 'static,
    ) -> Self {
        let authorize =
            move |request: &Request| authorize(request).map_err(|refused| Box::new(refused.into_response()));
        Page { authorize: Some(Arc::new(authorize)), ..self }
    }

    /// Names the hosts under which browsers know the page, without a port; `localhost` and loopback addresses are always known.
    /// Any other host in a request is refused, because a foreign site can let its own name point to your machine.
    pub fn hosts(self, hosts: impl IntoIterator<Item: Into<String>>) -> Self {
        let hosts = hosts.into_iter().map(|host| host.into().to_lowercase()).collect();
        Page { hosts, ..self }
    }

    /// Links rows to pages of the application: from the name of a table and the text of a key to an address. Only addresses that
    /// begin with `/`, `http://` or `https://` become links.
    pub fn link(self, link: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) -> Self {
        Page { link: Some(Arc::new(link)), ..self }
    }

    /// Returns the address of the application's own page of a row.
    pub(super) fn address_of(&self, table: &str, key: &str) -> Option<String> {
        let address = self.link.as_ref()?(table, key)?;
        let is_local = address.starts_with('/') && !address.starts_with("//");
        (is_local || address.starts_with("http://") || address.starts_with("https://")).then_some(address)
    }
}

/// A person who uses the page.
///
/// ```
/// use queueable_console::Visitor;
///
/// // May look at one queue, and change nothing.
/// let visitor = Visitor::new("support@example.org").read_only().only(["payments"]);
/// ```
#[derive(Debug, Clone)]
#[must_use = "it says what a person may do"]
pub struct Visitor {
    pub(super) name: String,
    pub(super) changes: bool,
    /// The tables that they may see; `None` is all.
    pub(super) queues: Option<Vec<String>>,
}

impl Visitor {
    /// Names a person, for the audit. They may see all queues, and change them if [the page allows changes](Page::allow_changes).
    pub fn new(name: impl Into<String>) -> Self {
        Visitor { name: name.into(), changes: true, queues: None }
    }

    /// Lets the person change nothing.
    pub fn read_only(self) -> Self {
        Visitor { changes: false, ..self }
    }

    /// Lets the person see only the queues of these tables. What is not of one queue, such as the audit, the doctor and the
    /// pollers, they do not see either. The name of the environment stands on each page.
    pub fn only(self, tables: impl IntoIterator<Item: Into<String>>) -> Self {
        Visitor { queues: Some(tables.into_iter().map(Into::into).collect()), ..self }
    }

    pub(super) fn may_see(&self, table: &str) -> bool {
        self.queues.as_ref().is_none_or(|tables| tables.iter().any(|of| of == table))
    }

    /// Whether they may see what is not of one queue.
    pub(super) fn may_see_all(&self) -> bool {
        self.queues.is_none()
    }
}
