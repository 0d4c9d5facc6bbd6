//! An endpoint on this machine that carries out functions.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A call that an endpoint got.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// An endpoint that runs until the test ends.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    asked: Receiver<Asked>,
}

impl Endpoint {
    /// Answers each call with the status and the body that `answer` says.
    pub(crate) fn start(answer: impl Fn(&Asked) -> (u16, String) + Send + Clone + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, sender) = (answer.clone(), sender.clone());
                std::thread::spawn(move || serve(&stream, &answer, &sender));
            }
        });
        Self { address, asked }
    }

    /// The next call; waits for it.
    pub(crate) fn next(&self) -> Asked {
        self.asked.recv_timeout(Duration::from_secs(20)).expect("a call comes")
    }

    /// The calls that came and were not looked at.
    pub(crate) fn rest(&self) -> Vec<Asked> {
        self.asked.try_iter().collect()
    }
}

fn serve(stream: &TcpStream, answer: &impl Fn(&Asked) -> (u16, String), sender: &Sender<Asked>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let path = line.split(' ').nth(1).unwrap().to_owned();
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut asked = Asked { path, headers, body: String::new() };
        let mut body = vec![0; asked.header("content-length").parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        asked.body = String::from_utf8(body).unwrap();
        let (status, body) = answer(&asked);
        // Nobody looks any more when the test has ended.
        let _ = sender.send(asked);
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if (&*stream).write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}
