//! The page over HTTP/2, as a proxy may ask for it: the host is a part of the address there, and no header.

use axum::body::{Body, to_bytes};
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use url::Url;

use crate::browser::runtime;
use crate::suite::served::Served;

struct Answer {
    response: Response<()>,
    text: String,
}

/// Sends a request without a `Host`.
fn send(served: &Served, request: Request<Body>) -> Answer {
    let site = Url::parse(&served.address("")).expect("it is an address");
    let peer = format!("127.0.0.1:{}", site.port().expect("the site has its own port"));
    assert!(!request.headers().contains_key(header::HOST));
    runtime().block_on(async {
        let stream = TcpStream::connect(peer).await.expect("the site listens");
        let begun = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.expect("the site speaks HTTP/2 to those who know that it does");
        runtime().spawn(connection);
        let (parts, body) = sender.send_request(request).await.expect("it answers").into_parts();
        let text = to_bytes(Body::new(body), usize::MAX).await.expect("the whole answer");
        assert_eq!(parts.version, Version::HTTP_2);
        let text = String::from_utf8(text.into()).expect("the page is UTF-8");
        Answer { response: Response::from_parts(parts, ()), text }
    })
}

fn request(method: Method, address: &str) -> http::request::Builder {
    Request::builder().version(Version::HTTP_2).method(method).uri(address)
}

#[test]
fn a_page_and_a_change_work_over_http_2() {
    let served = Served::new();
    let overview = request(Method::GET, &served.address("/overview")).body(Body::empty()).expect("a request");
    let overview = send(&served, overview);
    assert_eq!(overview.response.status(), StatusCode::OK, "{}", overview.text);
    assert!(overview.text.contains("Overview") && overview.text.contains("payments"), "{}", overview.text);
    assert!(overview.response.headers().contains_key(header::CONTENT_SECURITY_POLICY));

    let pause = request(Method::POST, &served.address("/pauses"))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .body(Body::from("change=pause&queue=payments&reason=the+bank+is+down"));
    let paused = send(&served, pause.expect("a request"));
    assert_eq!(paused.response.status(), StatusCode::SEE_OTHER, "{}", paused.text);
    let pauses = queueable::pauses(&mut served.database.connect()).expect("the table is there");
    let [pause] = &pauses[..] else { panic!("{pauses:?}") };
    assert_eq!((pause.reason.as_str(), pause.by.as_str()), ("the bank is down", "ops"));
}

#[test]
fn a_foreign_host_is_refused_over_http_2() {
    let served = Served::new();
    let foreign = Url::parse(&served.address("/overview")).map(|address| address.port().map(|port| (address, port)));
    let (address, port) = foreign.ok().flatten().expect("it is an address with a port");
    let foreign = format!("http://queues.example.org:{port}{}", address.path());
    let refused = send(&served, request(Method::GET, &foreign).body(Body::empty()).expect("a request"));
    assert_eq!(refused.response.status(), StatusCode::FORBIDDEN);
    assert!(refused.text.contains("not known under this host"), "{}", refused.text);
}
