//! A network between a worker and the broker that does what it is told to.
//!
//! Clients go on at the address that a broker gives them, so the proxy puts its own port into the answers.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use super::until;

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is lost, and its connection with it.
    Lost,
    /// It arrives; its answer is lost, and the connection with it.
    Unanswered,
    /// It waits until it is let go, and its connection with it.
    Held,
}

/// The fate of the next request to produce that has this text in it.
struct Rule {
    text: &'static str,
    fate: Fate,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    /// Requests wait.
    holding: bool,
    /// Nothing goes through, either way.
    stalled: bool,
}

pub struct Proxy {
    state: Arc<Mutex<State>>,
    address: String,
}

/// Where to go, and what an answer says of it: the host's name before the port.
#[derive(Clone)]
struct Broker {
    address: String,
    there: Vec<u8>,
    here: Vec<u8>,
}

impl Proxy {
    /// A proxy of its own for one broker.
    pub fn start(broker: &str) -> Self {
        let (host, port) = broker.rsplit_once(':').unwrap();
        let listener = TcpListener::bind((host, 0)).expect("the broker of these tests is on this machine");
        let own = listener.local_addr().unwrap().port();
        let named = |port: u16| [host.as_bytes(), &u32::from(port).to_be_bytes()].concat();
        let broker = Broker { address: broker.into(), there: named(port.parse().unwrap()), here: named(own) };
        let state = Arc::new(Mutex::new(State::default()));
        let proxy = Self { state: Arc::clone(&state), address: format!("{host}:{own}") };
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&broker.address) else { continue };
                let streams = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (broker, states) = (broker.clone(), (Arc::clone(&state), Arc::clone(&state)));
                spawn(move || closing(&client, &server, |c, s| requests(c, s, &states.0)));
                spawn(move || closing(&streams.0, &streams.1, |c, s| answers(c, s, &states.1, &broker)));
            }
        });
        proxy
    }

    /// Where the clients are to go.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next request to produce with this text in it has this fate.
    pub fn next(&self, text: &'static str, fate: Fate) {
        let mut state = self.state.lock().unwrap();
        state.holding = fate == Fate::Held;
        state.rule = Some(Rule { text, fate });
    }

    /// Waits until the next one has come.
    pub fn wait_for_fate(&self) {
        until("the request", || self.state.lock().unwrap().rule.is_none().then_some(()));
    }

    /// What is held goes on.
    pub fn let_go(&self) {
        self.state.lock().unwrap().holding = false;
    }

    /// Nothing goes through, or everything does.
    pub fn stall(&self, stalled: bool) {
        self.state.lock().unwrap().stalled = stalled;
    }
}

/// However it ends, both sides hear of it.
fn closing(
    client: &TcpStream,
    server: &TcpStream,
    run: impl FnOnce(&TcpStream, &TcpStream) -> io::Result<()>,
) {
    let _ = run(client, server);
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// A request or an answer: its length in four bytes, and that.
fn frame(mut from: &TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame)?;
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    frame.resize(4 + usize::try_from(length).unwrap(), 0);
    from.read_exact(&mut frame[4..])?;
    Ok(frame)
}

fn wait_while(state: &Mutex<State>, closed: impl Fn(&State) -> bool) {
    while closed(&state.lock().unwrap()) {
        sleep(Duration::from_millis(10));
    }
}

fn requests(client: &TcpStream, mut server: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    loop {
        let frame = frame(client)?;
        wait_while(state, |state| state.stalled);
        // The key of a request to produce is 0.
        let produce = frame[4..6] == [0, 0];
        let meant = |rule: &mut Rule| {
            let text = rule.text.as_bytes();
            produce && frame.windows(text.len()).any(|window| window == text)
        };
        let fate = state.lock().unwrap().rule.take_if(meant).map(|rule| rule.fate);
        match fate {
            Some(Fate::Lost) => return Ok(()),
            Some(Fate::Unanswered) => {
                // The other thread passes on what comes back, unless nobody is there any more.
                client.shutdown(Shutdown::Both)?;
                server.write_all(&frame)?;
                // So that the broker reads it before it hears of the end.
                sleep(Duration::from_millis(500));
                return Ok(());
            }
            Some(Fate::Held) => wait_while(state, |state| state.holding),
            None => {}
        }
        server.write_all(&frame)?;
    }
}

fn answers(
    mut client: &TcpStream,
    server: &TcpStream,
    state: &Mutex<State>,
    broker: &Broker,
) -> io::Result<()> {
    loop {
        let mut frame = frame(server)?;
        wait_while(state, |state| state.stalled);
        let length = broker.there.len();
        for at in 0..frame.len().saturating_sub(length - 1) {
            if frame[at..at + length] == broker.there[..] {
                frame[at..at + length].copy_from_slice(&broker.here);
            }
        }
        client.write_all(&frame)?;
    }
}
