//! Who may ask, and who may change something.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use queueable_console::{Page, Visitor};

use super::served::{SECRET, Served, form, get, ours, peer, post};

const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;

/// The addresses of all pages.
pub(crate) const PAGES: [&str; 14] = [
    "/",
    "/q/payments",
    "/q/payments/errors",
    "/q/payments/backlog",
    "/q/payments/charts",
    "/q/payments/row?key=1",
    "/q/payments/change?operation=retry&state=failed",
    "/q/payments/rows.csv",
    "/q/payments/rows.json",
    "/pollers",
    "/pauses",
    "/runs",
    "/audit",
    "/doctor",
];

#[test]
fn a_host_that_is_not_ours_is_refused() {
    let served = Served::new(|page| page.hosts(["Queues.example.org"]));
    let status = |host: &str| {
        let request = Request::get("/").header(header::HOST, host).extension(peer("127.0.0.1:50000"));
        served.send(request.body(Body::empty()).unwrap()).status
    };
    for host in
        ["localhost", "localhost:8080", "127.0.0.1", "[::1]:80", "queues.example.org:443", "QUEUES.example.org."]
    {
        assert_eq!(status(host), StatusCode::OK, "{host}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a@localhost@evil.example", "0.0.0.0"]
    {
        assert_eq!(status(host), FORBIDDEN, "{host}");
    }
    let none = Request::get("/").extension(peer("127.0.0.1:50000")).body(Body::empty()).unwrap();
    assert_eq!(served.send(none).status, FORBIDDEN);
    let two = get("/").header(header::HOST, "localhost").body(Body::empty()).unwrap();
    assert_eq!(served.send(two).status, FORBIDDEN);
}

#[test]
fn without_a_name_only_the_same_machine_is_answered() {
    let served = Served::new(|page| page);
    served.insert_failed(1..=1, "declined");
    let status = |request: axum::http::request::Builder| served.send(request.body(Body::empty()).unwrap()).status;
    for page in PAGES {
        let from = |address: &str| Request::get(page).header(header::HOST, "localhost").extension(peer(address));
        assert_eq!(status(from("192.0.2.7:50000")), FORBIDDEN, "{page}");
        assert_eq!(status(from("[2001:db8::7]:50000")), FORBIDDEN, "{page}");
        assert_eq!(status(Request::get(page).header(header::HOST, "localhost")), FORBIDDEN, "{page}");
        for name in ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"] {
            assert_eq!(status(get(page).header(name, "x")), FORBIDDEN, "{page} {name}");
        }
    }
    assert_eq!(status(get("/")), StatusCode::OK);
    assert_eq!(status(get("/").extension(peer("[::ffff:127.0.0.1]:50000"))), StatusCode::OK);
}

#[test]
fn the_hook_decides_who_sees_and_changes_what() {
    let served = Served::new(|page| {
        page.allow_changes().authorize(|request| match request.headers.get("x-user").map(|name| name.as_bytes()) {
            Some(b"ops") => Ok(Visitor::new("ops@example.org")),
            Some(b"reader") => Ok(Visitor::new("reader@example.org").read_only()),
            Some(b"mailer") => Ok(Visitor::new("mailer@example.org").only(["mails"])),
            _ => Err((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic")])),
        })
    });
    served.insert_failed(1..=3, "declined");
    let far = |page: &str, user: &str| {
        let request = Request::get(page).header(header::HOST, "localhost").header("x-user", user);
        served.send(request.extension(peer("192.0.2.7:1")).body(Body::empty()).unwrap())
    };
    let nobody = far("/", "");
    assert_eq!((nobody.status, nobody.header("www-authenticate")), (StatusCode::UNAUTHORIZED, "Basic"));
    assert!(!nobody.text.contains("payments"));
    let ops = far("/q/payments?state=failed", "ops");
    assert!(ops.text.contains("ops@example.org") && ops.text.contains("value=\"retry\""), "{}", ops.text);
    let reader = far("/q/payments?state=failed", "reader");
    assert!(reader.text.contains("(read-only)") && !reader.text.contains("value=\"retry\""), "{}", reader.text);
    assert_eq!(far("/q/payments/change?operation=retry&state=failed", "reader").status, FORBIDDEN);
    for page in PAGES.iter().filter(|page| page.contains("payments")) {
        let seen = far(page, "mailer");
        assert_eq!(seen.status, StatusCode::NOT_FOUND, "{page}");
        assert!(!seen.text.contains("declined") && !seen.text.contains("company_id"), "{page}: {}", seen.text);
    }
    let overview = far("/", "mailer");
    assert!(overview.text.contains("mails") && !overview.text.contains("payments"), "{}", overview.text);
    for page in ["/pollers", "/pauses", "/audit", "/doctor"] {
        assert_eq!(far(page, "mailer").status, FORBIDDEN, "{page}");
    }
    for user in ["reader", "mailer"] {
        let change =
            ours(post("/q/payments/change")).header("x-user", user).body(form(&[("operation", "retry")])).unwrap();
        let refused = served.send(change).status;
        assert!(refused == FORBIDDEN || refused == StatusCode::NOT_FOUND, "{user} {refused}");
    }
}

#[test]
fn only_the_pages_own_forms_change_something() {
    let served = Served::local();
    served.insert_failed(1..=3, "declined");
    let preview = served.get("/q/payments/change?operation=retry&state=failed");
    let fields: Vec<(String, String)> = ["operation", "state", "found", "figures", "keys", "once", "token"]
        .map(|name| (name.to_owned(), preview.field(name)))
        .into_iter()
        .chain([("reason".to_owned(), "ticket 812".to_owned())])
        .collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let without: Vec<_> = fields.iter().copied().filter(|(name, _)| *name != "token").collect();
    let send = |request: axum::http::request::Builder, fields: &[(&str, &str)]| {
        served.send(request.body(form(fields)).unwrap()).status
    };
    let change = || post("/q/payments/change");
    for from in ["cross-site", "same-site", "none", "Same-Origin", ""] {
        assert_eq!(send(change().header("sec-fetch-site", from), &fields), FORBIDDEN, "{from:?}");
    }
    // A browser that does not say where it comes from needs the token that only the page knows.
    assert_eq!(send(change(), &without), FORBIDDEN, "no token");
    let other = Served::local().get("/pauses").field("token");
    let foreign: Vec<_> = without.iter().copied().chain([("token", other.as_str())]).collect();
    assert_eq!(send(change(), &foreign), FORBIDDEN, "the token of another process");
    for request in [change(), ours(change())] {
        let from = request.header(header::ORIGIN, "https://evil.example");
        assert_eq!(send(from, &fields), FORBIDDEN, "the origin of another site");
    }
    assert_eq!(served.with_status("FAILED"), 3);
    let own = change().header(header::ORIGIN, "http://127.0.0.1:8080");
    assert_eq!(send(own, &fields), StatusCode::SEE_OTHER);
}

#[test]
fn another_site_links_to_the_page_and_asks_for_nothing_else() {
    let served = Served::local();
    let status = |mode: &str| {
        let request = get("/q/payments").header("sec-fetch-site", "cross-site").header("sec-fetch-mode", mode);
        served.send(request.body(Body::empty()).unwrap()).status
    };
    assert_eq!((status("navigate"), status("no-cors"), status("cors")), (StatusCode::OK, FORBIDDEN, FORBIDDEN));
}

#[test]
fn a_proxy_that_says_nothing_of_itself_is_refused_if_it_speaks_as_proxies_do() {
    let served = Served::local();
    let request = get("/").version(axum::http::Version::HTTP_10);
    assert_eq!(served.send(request.body(Body::empty()).unwrap()).status, FORBIDDEN);
}

#[test]
fn without_changes_nothing_is_changed() {
    for settings in
        [(|page| page) as fn(Page) -> Page, |page| page.authorize(|_| Ok::<_, StatusCode>(Visitor::new("ops")))]
    {
        let served = Served::new(settings);
        served.insert_failed(1..=3, "declined");
        let page = served.get("/q/payments?state=failed");
        assert!(page.text.contains("(read-only)") && !page.text.contains("type=\"checkbox\" name=\"key\""));
        for address in ["/q/payments/change", "/pauses", "/runs/1/stop"] {
            let status = served.post(address, &[("operation", "retry"), ("state", "failed"), ("reason", "x")]).status;
            assert!(status == FORBIDDEN || status == StatusCode::METHOD_NOT_ALLOWED, "{address} {status}");
        }
        assert_eq!(served.with_status("FAILED"), 3);
    }
}

#[test]
fn reading_changes_nothing() {
    let served = Served::local();
    served.insert_failed(1..=3, "declined");
    for operation in ["retry", "delete", "skip", "stop", "postpone&for=1h", "priority&to=3", "archive"] {
        for more in ["", "&reason=x&found=3&keys=1&figures=[]", "&yes=yes"] {
            served.get(&format!("/q/payments/change?operation={operation}&state=failed{more}"));
        }
    }
    for page in PAGES {
        for method in ["HEAD", "GET"] {
            served.send(get(page).method(method).body(Body::empty()).unwrap());
        }
    }
    assert_eq!(served.with_status("FAILED"), 3);
}

#[test]
fn every_answer_says_what_no_page_may_do() {
    let served = Served::local();
    served.insert_failed(1..=1, "declined");
    let assets = served.get("/").text;
    let assets = ["href=\"./assets", "src=\"./assets"].iter().flat_map(|begin| {
        let found = assets.split(begin).skip(1);
        found.map(|rest| format!("/assets{}", rest.split('"').next().unwrap())).collect::<Vec<_>>()
    });
    let assets: Vec<_> = assets.collect();
    assert_eq!(assets.len(), 3, "a style sheet, a script and an icon");
    let pages = PAGES.iter().map(|page| (*page).to_owned());
    let wrong = ["/nothing", "/q/nothing", "/q/payments?where=nothing%20%3D%201", "/assets/x/y.js"].map(str::to_owned);
    for address in pages.chain(wrong).chain(assets.clone()) {
        let answer = served.get(&address);
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{address} {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"), "{address}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{address}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{address}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{address}");
        let kept = if assets.contains(&address) { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), kept, "{address}");
        for attribute in [" style=", " onclick=", " onload=", "<style", "javascript:"] {
            assert!(address.contains("assets") || !answer.text.contains(attribute), "{address} {attribute}");
        }
        assert!(!answer.text.contains(SECRET), "{address} shows a secret");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let served = Served::local();
    let long = "x".repeat(20_000);
    let refused = served.get(&format!("/q/payments?where={long}"));
    assert_eq!(refused.status, StatusCode::URI_TOO_LONG);
    assert!(refused.text.contains("at most 16 KiB"), "{}", refused.text);
    // The form of a search with many columns is longer than what comes of it.
    let empty: String = (0..2_000).map(|column| format!("v.column_{column}=&")).collect();
    assert_eq!(served.get(&format!("/q/payments/search?{empty}")).status, StatusCode::SEE_OTHER);
    let large = "x".repeat(300 * 1024);
    let refused = served.post("/q/payments/change", &[("reason", &large)]);
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(refused.text.contains("larger than 256 KiB"), "{}", refused.text);
}
