//! Connections: taken in as long as there is room, given their time, and let go in order.

use std::{net::TcpListener as StdListener, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::Request};
use drupe_extension_api::{Fault, sdk::Shutdown};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower_service::Service;

use crate::{routes, server::Server};

/// How long the head of a request may take to come.
const HEAD: Duration = Duration::from_secs(15);

/// How long requests have to come to their end when the server stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Files that the process needs besides those of its connections.
const OWN_FILES: u64 = 64;

/// How long nobody is taken in after the system refused to give a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// The place of a connection among those that there is room for. Whoever goes on with a connection that is no longer HTTP
/// takes it out of the request and keeps it until the connection ends.
#[derive(Clone)]
pub struct Place {
    _held: Arc<OwnedSemaphorePermit>,
}

/// Serves until it shall stop.
pub async fn serve(server: Arc<Server>, socket: StdListener, shutdown: Shutdown) -> Result<(), Fault> {
    let _serving = server.serve();
    socket.set_nonblocking(true)?;
    let socket = TcpListener::from_std(socket)?;
    server.look_at_hooks().await;
    let most = room(&server);
    let (router, places) = (routes::all(&server), Arc::new(Semaphore::new(most)));
    tokio::select! {
        () = take_in(&server, &socket, &router, &places) => {}
        () = shutdown => {}
    }
    server.close();
    // Whoever is not done by then is cut off.
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN, places.acquire_many(all)).await;
    Ok(())
}

/// How many connections there is room for: as the configuration says, where the system allows as many files.
fn room(server: &Server) -> usize {
    let wanted = server.settings.max_connections;
    let files = getrlimit(Resource::Nofile)
        .current
        .map_or(wanted, |files| usize::try_from(files.saturating_sub(OWN_FILES)).unwrap_or(wanted).max(1));
    if files < wanted {
        server.host.warn(format!(
            "there is room for {files} connections, and not for {wanted}: the system allows no more files"
        ));
    }
    wanted.min(files)
}

async fn take_in(server: &Arc<Server>, socket: &TcpListener, router: &Router, places: &Arc<Semaphore>) {
    // It is never closed.
    while let Ok(place) = Arc::clone(places).acquire_owned().await {
        let stream = match socket.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                server.host.warn(format!("no connection is taken in: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (router, own) = (router.clone(), Arc::clone(server));
        let place = Place { _held: Arc::new(place) };
        if let Err(fault) = server.host.spawn(async move { connection(stream, router, place, &own).await }) {
            server.host.warn(fault);
        }
    }
}

/// Answers the requests of a connection. One that breaks off has nobody to be told.
async fn connection(stream: TcpStream, router: Router, place: Place, server: &Server) {
    // Small frames of a stream are to go out at once; without that they only come later.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(place.clone());
        router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = server.closing() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
