//! A TCP proxy on 127.0.0.1 that cuts, holds and refuses connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Outcome, text};

/// Leads connections to another port, until it is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Vec<TcpStream>>,
    target: AtomicU16,
    refusing: AtomicBool,
    ended: AtomicBool,
    /// Whether bytes wait; the condition tells when no more.
    holding: Mutex<bool>,
    released: Condvar,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Listens at a free port. Nothing is let through until [`Proxy::lead_to`] says where to.
    ///
    /// # Errors
    /// When no port is free.
    pub fn listen() -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let accepting = std::thread::spawn(move || {
            for incoming in listener.incoming() {
                if seen.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(incoming) = incoming else { continue };
                if !seen.refusing.load(Ordering::SeqCst) {
                    // Where the broker is away the client finds its connection closed.
                    let _ = seen.lead(incoming);
                }
            }
        });
        Ok(Self { port, shared, accepting: Some(accepting) })
    }

    /// Leads new connections to this port from now on.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections; how many streams there were.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut *lock(&self.shared.open));
        open.iter().filter(|s| s.shutdown(Shutdown::Both).is_ok()).count()
    }

    /// Whether new connections are refused from now on.
    pub fn refuse(&self, refusing: bool) {
        self.shared.refusing.store(refusing, Ordering::SeqCst);
    }

    /// Whether what is sent waits from now on. What waits when [`Proxy::cut`] comes is lost: a request that the broker never
    /// sees, an answer that the client never sees.
    pub fn hold(&self, holding: bool) {
        *lock(&self.shared.holding) = holding;
        self.shared.released.notify_all();
    }
}

impl Shared {
    fn lead(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        let broker = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target.load(Ordering::SeqCst)))?;
        client.set_nodelay(true)?;
        broker.set_nodelay(true)?;
        let mut open = lock(&self.open);
        // Those that have ended are only kept until here.
        open.retain(|s| s.peer_addr().is_ok());
        open.push(client.try_clone()?);
        open.push(broker.try_clone()?);
        drop(open);
        let (to, from) = (broker.try_clone()?, client.try_clone()?);
        for (from, to) in [(from, to), (broker, client)] {
            let shared = self.clone();
            std::thread::spawn(move || shared.copy(from, to));
        }
        Ok(())
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            let mut holding = lock(&self.holding);
            while *holding && !self.ended.load(Ordering::SeqCst) {
                holding = self.released.wait(holding).unwrap_or_else(PoisonError::into_inner);
            }
            drop(holding);
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.hold(false);
        self.cut();
        // So that it looks up once more.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}
