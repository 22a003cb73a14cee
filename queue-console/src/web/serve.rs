//! `serve`: the page from a program of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use super::router::router;
use super::settings::Page;
use crate::cli::{Global, Serve};
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};

/// Serves the page until Ctrl-C or SIGTERM.
pub(crate) fn run<C: Database>(parts: &Arc<Parts<C>>, global: &Global, of: &Serve) -> Answer {
    let Serve { listen, allow_changes } = of;
    if parts.page.authorize.is_none() && !listen.ip().to_canonical().is_loopback() {
        return Err(Failure::Usage(format!(
            "`--listen {listen}` is open to others, and the program names no people by `Page::authorize`: listen on 127.0.0.1"
        )));
    }
    let address = parts.address(global)?.to_owned();
    if *allow_changes && parts.read_only {
        return Err(Failure::Usage("this console is read-only: it changes nothing".to_owned()));
    }
    let router = router(parts.clone(), served(&parts.page, of), Ok(address));
    // What the database refuses is said there, and not in the browser. A program with a log of its own keeps that.
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    let _ = log.try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(listen).await;
        let listener = listener.map_err(|error| Failure::Failed(format!("cannot listen on {listen}: {error}")))?;
        println!("http://{}/", listener.local_addr()?);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).with_graceful_shutdown(ended()).await.map_err(Failure::from)
    })?;
    // A request that hangs on a silent network does not keep the program.
    runtime.shutdown_background();
    Ok(())
}

/// The page as the program has set it up. Only the command line decides whether people may change something.
fn served(page: &Page, of: &Serve) -> Page {
    Page { changes: of.allow_changes, ..page.clone() }
}

/// Waits for a signal that ends the program.
async fn ended() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = interrupt.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_alone_lets_people_change_something() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        for allow_changes in [false, true] {
            for page in [Page::default(), Page::default().allow_changes()] {
                assert_eq!(served(&page, &Serve { listen, allow_changes }).changes, allow_changes);
            }
        }
    }
}
