//! Who may ask: the host, the person, and for changes the place from which they come.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, OriginalUri, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::layout;
use super::settings::Visitor;
use super::site::Site;
use super::trouble::{Told, Trouble};
use crate::database::Database;

/// Only our own files and forms; no script or style inside a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What a proxy adds to a request.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

const FOREIGN: &str = "Another site has sent this. Only the page's own forms change something.";

/// Longer queries are refused: servers and proxies differ in what they let through. The form of a search has a field for each column.
const LONGEST_QUERY: usize = 16 * 1024;
const LONGEST_SEARCH: usize = 64 * 1024;

/// A request that was let in.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) visitor: Visitor,
    /// Whether they may change something.
    pub(super) changes: bool,
    /// Makes what each form has in it, for browsers that do not say where a request comes from.
    tokens: Tokens,
    /// How the page's first address is reached from this one. All links are relative, so that a proxy may add or strip a prefix.
    pub(super) root: String,
    /// Whether the browser has said that one of our own pages sends this.
    is_ours: bool,
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get::<Visit>().cloned().ok_or(StatusCode::FORBIDDEN)
    }
}

/// The fields of a form that was sent: the only way to read one, so that none is read that another site has sent.
#[derive(Debug)]
pub(super) struct Sent(pub(super) Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let visit = request.extensions().get::<Visit>().cloned();
        let visit = visit.ok_or_else(|| StatusCode::FORBIDDEN.into_response())?;
        let form = axum::extract::Form::<Vec<(String, String)>>::from_request(request, state).await;
        let axum::extract::Form(fields) = form.map_err(|refused| {
            layout::refused(refused.status(), "This form cannot be read, or is larger than 256 KiB.")
        })?;
        let has_token = fields.iter().any(|(name, value)| name == "token" && visit.tokens.knows(value, &visit.visitor));
        if !visit.is_ours && !has_token {
            let why =
                "This form does not come from the page itself. Please load the page again, and send it from there.";
            return Err(layout::refusal(&Trouble::Forbidden(why.to_owned())));
        }
        if !visit.changes {
            return Err(layout::refusal(&Trouble::Forbidden(
                "You may look at this page, and change nothing.".to_owned(),
            )));
        }
        Ok(Sent(fields))
    }
}

/// Lets a request in or answers it, and says to the browser what no page may do.
pub(super) async fn guard<C: Database>(State(site): State<Site<C>>, mut request: Request, next: Next) -> Response {
    let mut response = match admit(&site, &mut request) {
        Ok(()) => next.run(request).await,
        Err(response) => *response,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Puts a [`Visit`] into a request that may go on.
fn admit<C: Database>(site: &Site<C>, request: &mut Request) -> Result<(), Box<Response>> {
    let refuse = |text: &str| Box::new(layout::refusal(&Trouble::Forbidden(text.to_owned())));
    let page = &site.page;
    let longest = if request.uri().path().ends_with("/search") { LONGEST_SEARCH } else { LONGEST_QUERY };
    if request.uri().query().is_some_and(|query| query.len() > longest) {
        let text = format!("This address is too long: what follows its `?` has at most {} KiB.", longest / 1024);
        return Err(Box::new(layout::refused(StatusCode::URI_TOO_LONG, &text)));
    }
    let knows = |host: &str| is_loopback(host) || page.hosts.iter().any(|known| known == host);
    if !host(request).is_some_and(|host| knows(&host)) {
        return Err(refuse("The page is not known under this host. The application names its hosts by `Page::hosts`."));
    }
    // The hook sees a request without its body.
    let (parts, body) = std::mem::take(request).into_parts();
    let visitor = match &page.authorize {
        Some(authorize) => authorize(&parts),
        None => local(&parts).map(|()| Visitor::new("local")).map_err(|text| refuse(&text)),
    };
    *request = Request::from_parts(parts, body);
    let visitor = visitor?;
    let headers = request.headers();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let header = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_ours = match header("sec-fetch-site") {
        Some(b"same-origin") => true,
        Some(_) if !reads => return Err(refuse(FOREIGN)),
        // A link from elsewhere is followed; a picture or a script of another site makes the database work for nothing.
        Some(b"cross-site" | b"same-site") if header("sec-fetch-mode") != Some(b"navigate") => {
            return Err(refuse(FOREIGN));
        }
        _ => false,
    };
    // With this policy for referrers a browser mostly says `null`.
    if origin(headers).is_some_and(|origin| !knows(&origin)) {
        return Err(refuse(FOREIGN));
    }
    let changes = page.changes && !site.parts.read_only && visitor.changes;
    let root = root(request);
    request.extensions_mut().insert(Visit { visitor, changes, tokens: site.tokens.clone(), root, is_ours });
    Ok(())
}

/// Tells whether a request comes from the same machine.
fn local(parts: &Parts) -> Result<(), String> {
    if let Some(name) = FORWARDED.iter().find(|name| parts.headers.contains_key(**name)) {
        return Err(format!("A proxy has sent this request (`{name}`). Name people by `Page::authorize` first."));
    }
    // Browsers have not spoken it for decades, and a proxy that adds no header may.
    if parts.version < Version::HTTP_11 {
        return Err("Without `Page::authorize` the page answers only to browsers, and none speaks HTTP/1.0.".to_owned());
    }
    match parts.extensions.get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(peer)) if peer.ip().to_canonical().is_loopback() => Ok(()),
        Some(_) => Err("Without `Page::authorize` the page answers only on the same machine.".to_owned()),
        None => Err("The page cannot see where a request comes from. Name people by `Page::authorize`, or serve the \
                     application with `into_make_service_with_connect_info::<SocketAddr>()`."
            .to_owned()),
    }
}

/// The host that the browser has asked for, without its port.
fn host(request: &Request) -> Option<String> {
    let named = request.headers().get_all(header::HOST);
    let mut named = named.iter();
    let host = match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok()?,
        // Over HTTP/2 the address has it.
        (None, None) => request.uri().authority()?.as_str(),
        _ => return None,
    };
    Some(without_port(host))
}

/// The host of the page that has sent a form; `null` is none.
fn origin(headers: &HeaderMap) -> Option<String> {
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or("unreadable");
    let (_, host) = origin.split_once("://")?;
    Some(without_port(host))
}

fn without_port(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_end_matches('.').to_lowercase()
}

pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Makes the tokens of forms: something random, and a code over it and the visitor's name that only this process can make.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens(Arc<RandomState>);

impl Tokens {
    fn of(&self, visitor: &Visitor) -> String {
        let random = random();
        let code = self.code(&random, visitor);
        random + &code
    }

    fn knows(&self, token: &str, visitor: &Visitor) -> bool {
        token.split_at_checked(RANDOM).is_some_and(|(random, code)| code == self.code(random, visitor))
    }

    /// SipHash with the process' own random key.
    fn code(&self, random: &str, visitor: &Visitor) -> String {
        format!("{:016x}", self.0.hash_one((random, &visitor.name)))
    }
}

/// How many digits a random text has.
const RANDOM: usize = 32;

/// A text that nobody guesses.
pub(super) fn random() -> String {
    let mut random = [0; RANDOM / 2];
    getrandom::fill(&mut random).expect("the system has random numbers");
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The way back to the page's first address.
fn root(request: &Request) -> String {
    let path = request.uri().path().trim_start_matches('/');
    if !path.is_empty() {
        return match path.matches('/').count() {
            0 => "./".to_owned(),
            depth => "../".repeat(depth),
        };
    }
    let original = request.extensions().get::<OriginalUri>().map_or("/", |OriginalUri(uri)| uri.path());
    match original.rsplit_once('/') {
        Some((_, last)) if !last.is_empty() => format!("{last}/"),
        _ => "./".to_owned(),
    }
}

impl Visit {
    /// The hidden field of each form.
    pub(super) fn token(&self) -> String {
        self.tokens.of(&self.visitor)
    }

    /// Refuses what shows more than single queues to a visitor who may see only some.
    pub(super) fn must_see_all(&self) -> Told<()> {
        match self.visitor.may_see_all() {
            true => Ok(()),
            false => Err(Trouble::Forbidden("You may see single queues, and this page is about all.".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_a_visitor_and_a_process() {
        let (tokens, ann) = (Tokens::default(), Visitor::new("ann"));
        let token = tokens.of(&ann);
        assert!(tokens.knows(&token, &ann) && token != tokens.of(&ann));
        assert!(!tokens.knows(&token, &Visitor::new("bob")) && !Tokens::default().knows(&token, &ann));
        assert!(
            !tokens.knows("", &ann) && !tokens.knows(&token[..RANDOM], &ann) && !tokens.knows(&"é".repeat(40), &ann)
        );
    }

    #[test]
    fn only_loopback_is_the_same_machine() {
        for host in ["localhost", "127.0.0.1", "127.8.9.10", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "localhost.example.org", "10.0.0.1", "[::2]", "127.0.0.1.example.org", "0.0.0.0", "localhost@x"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_host_has_no_port() {
        for (given, expected) in [
            ("Localhost:8080", "localhost"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("queues.example.org.", "queues.example.org"),
            ("localhost@evil.example:80", "evil.example"),
        ] {
            assert_eq!(without_port(given), expected);
        }
    }
}
