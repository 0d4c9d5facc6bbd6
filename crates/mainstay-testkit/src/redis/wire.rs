//! Just enough of Redis' protocol to set servers up.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Sends one command to the server at `port` and gives its answer as text.
pub(super) fn command(port: u16, words: &[&str]) -> Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("connecting to the test Redis")?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    (&stream).write_all(text.as_bytes())?;
    answer(&mut BufReader::new(stream)).with_context(|| words.join(" "))
}

fn answer(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else { bail!("no answer") };
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => bail!("{rest}"),
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>().context("a length")? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(String::from_utf8(bytes)?)
        }
        "*" => {
            let lines: Result<Vec<String>> = (0..rest.parse::<usize>()?).map(|_| answer(from)).collect();
            Ok(lines?.join("\n"))
        }
        _ => bail!("an answer that begins with {kind}"),
    }
}
