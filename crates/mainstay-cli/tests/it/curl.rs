//! The `curl` lines of the documents, asked of a real server: each is followed by comments that say what is answered.
//! They are read here as a shell and curl would read them, so that neither needs to be installed.

use crate::program::Folder;
use crate::serving::Serving;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// Where the documents say the server is.
const DEFAULT: &str = "http://127.0.0.1:7420";
/// What stands for a text that is another each time.
const ANY: &str = "…";

/// A line of a document.
struct Line {
    words: Vec<String>,
    /// The comments behind it.
    says: Vec<String>,
}

/// The `curl` lines of a document's blocks of shell.
fn lines(document: &str) -> Vec<Line> {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(lines_of).collect()
}

fn lines_of(block: &str) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let mut rest = block.trim_start();
    while !rest.is_empty() {
        if let Some(comment) = rest.strip_prefix('#') {
            let (comment, tail) = comment.split_once('\n').unwrap_or((comment, ""));
            if let Some(line) = found.last_mut() {
                line.says.push(comment.trim().to_owned());
            }
            rest = tail.trim_start();
            continue;
        }
        let (words, tail) = command(rest);
        found.push(Line { words, says: Vec::new() });
        rest = tail.trim_start();
    }
    found.retain(|line| line.words[0] == "curl");
    found
}

/// The words of the first command, without its comment, and what comes after it.
fn command(text: &str) -> (Vec<String>, &str) {
    let (mut words, mut word, mut is_word) = (Vec::new(), String::new(), false);
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' => {
                is_word = true;
                word.extend(letters.by_ref().map(|(_, letter)| letter).take_while(|letter| *letter != '\''));
            }
            '#' if !is_word => {
                let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
                return (words, &text[end..]);
            }
            letter if letter.is_whitespace() => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
                if letter == '\n' {
                    return (words, &text[at..]);
                }
            }
            '"' | '\\' | '$' | '|' | ';' => {
                panic!("this test does not read {letter:?} as a shell does: {text}")
            }
            letter => {
                is_word = true;
                word.push(letter);
            }
        }
    }
    words.extend(is_word.then_some(word));
    (words, "")
}

/// Does what curl would do, and returns what it would print: all of it, or as many lines as are waited for.
fn curl(words: &[String], server: &Serving, wanted: usize) -> String {
    let (mut url, mut headers, mut body, mut asked) = (None, String::new(), None, None);
    let mut words = words[1..].iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-N" => {}
            "-H" => headers += &format!("{}\r\n", words.next().unwrap()),
            "-d" => body = words.next(),
            "-X" => asked = words.next(),
            flag if flag.starts_with('-') => panic!("this test does not know curl's {flag}"),
            text => {
                let path = text.strip_prefix(DEFAULT);
                url = Some(path.unwrap_or_else(|| panic!("{text} is not {DEFAULT}")));
            }
        }
    }
    let (usual, body) = body.map_or(("GET", ""), |body| ("POST", body));
    let method = asked.map_or(usual, String::as_str);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}",
        url.unwrap(),
        server.address()
    )
    .unwrap();
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(answer.read_line(&mut line).unwrap() > 0, "the answer has no head");
    }
    let mut said = String::new();
    if wanted == 1 {
        answer.read_to_string(&mut said).unwrap();
        return said;
    }
    // A stream does not end by itself: whole lines of it are read until there are enough that say something.
    let is_news = |line: &str| line.starts_with("id:") || line.starts_with("data:");
    while said.lines().filter(|line| is_news(line)).count() < wanted {
        line.clear();
        assert!(answer.read_line(&mut line).unwrap() > 0, "the stream ended: {said}");
        said.push_str(if is_news(&line) { &line } else { "" });
    }
    said
}

/// The item that an answer is about, which later lines may leave away.
fn work_id(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let found = [&answer["workId"], &answer["work"][0]["workId"], &answer["items"][0]["workId"]];
    found.into_iter().find_map(Value::as_str).map(str::to_owned)
}

/// The lease that an answer gives, which later lines show.
fn lease(answer: &str) -> Option<String> {
    serde_json::from_str::<Value>(answer).ok()?["lease"].as_str().map(str::to_owned)
}

/// A word with what earlier lines were answered in place of what the document leaves away.
fn filled(word: &str, item: &str, lease: &str) -> String {
    let word = word.replace(&format!("/leases/{ANY}"), &format!("/leases/{lease}"));
    let word = word.replace(&format!("\"lease\": \"{ANY}\""), &format!("\"lease\": \"{lease}\""));
    if word.starts_with(DEFAULT) { word.replace(ANY, item) } else { word }
}

/// Whether an answer is as a document says. A document may leave members away.
fn is_so(says: &str, answer: &str) -> bool {
    let field = |text: &str| text.split_once(": ").map(|(field, value)| (field.to_owned(), value.to_owned()));
    match (serde_json::from_str(says), serde_json::from_str(answer)) {
        (Ok(says), Ok(answer)) => has(&says, &answer),
        _ => match (field(says), field(answer)) {
            (Some((one, says)), Some((other, answer))) => one == other && is_so(&says, &answer),
            _ => false,
        },
    }
}

fn has(says: &Value, answer: &Value) -> bool {
    match (says, answer) {
        (Value::String(text), Value::String(_)) if text == ANY => true,
        (Value::Object(says), Value::Object(answer)) => {
            says.iter().all(|(name, says)| answer.get(name).is_some_and(|answer| has(says, answer)))
        }
        (Value::Array(says), Value::Array(answer)) => {
            says.len() == answer.len() && says.iter().zip(answer).all(|(says, answer)| has(says, answer))
        }
        _ => says == answer,
    }
}

#[test]
fn the_lines_in_the_documents_are_answered_as_they_say() {
    let documents = [
        ("README.md", 1),
        ("docs/examples.md", 10),
        ("docs/concepts/circuits.md", 3),
        ("docs/concepts/delivery.md", 3),
        ("docs/concepts/limits.md", 4),
        ("docs/concepts/events.md", 8),
        ("docs/concepts/work.md", 12),
        ("docs/operations/work.md", 1),
    ];
    for (document, least) in documents {
        let lines = lines(document);
        assert!(lines.len() >= least, "{document}: {} lines", lines.len());
        let folder = Folder::new();
        let mail = "[limits.mail]\nkind = \"fixed window\"\nrate = 10\nperiod = \"1h\"\n";
        folder.write("mainstay.toml", mail);
        let server = Serving::start(&folder);
        let (mut item, mut held) = (String::new(), String::new());
        for Line { mut words, says } in lines {
            assert!(!says.is_empty(), "{document} does not say what is answered to {words:?}");
            words.iter_mut().for_each(|word| *word = filled(word, &item, &held));
            let answer = curl(&words, &server, says.len());
            item = work_id(&answer).unwrap_or(item);
            held = lease(&answer).unwrap_or(held);
            assert_eq!(answer.lines().count(), says.len(), "{document}: {words:?}: {answer}");
            for (says, answer) in says.iter().zip(answer.lines()) {
                assert!(is_so(says, answer), "{document}: {words:?}\nsays    {says}\nanswers {answer}");
            }
        }
        server.stop("-TERM");
    }
}

#[test]
fn an_answer_that_is_not_so_is_noticed() {
    let answer = r#"{"events":[{"eventId":"e7","position":1,"data":{}}],"head":1}"#;
    assert!(is_so(r#"{"events":[{"eventId":"…","position":1}]}"#, answer));
    for wrong in [
        r#"{"events":[{"eventId":"…","position":2}]}"#,
        r#"{"events":[]}"#,
        r#"{"events":[{"id":"…"}]}"#,
        r#"{"events":[{"position":"…"}]}"#,
        r#"{"next":null}"#,
        "id: 1",
        "nonsense",
    ] {
        assert!(!is_so(wrong, answer), "{wrong}");
    }
    assert!(is_so("id: 1", "id: 1") && !is_so("id: 1", "id: 2") && !is_so("data: 1", "id: 1"));
}

#[test]
fn shell_is_read_as_a_shell_reads_it() {
    let read = lines_of(
        "# nothing\nls # not ours\ncurl 'http://a?b=c d' -d '{\n  \"#\": 1}' # later\n# {}\n# 2\n\ncurl -N x\n",
    );
    let words: Vec<_> = read.iter().map(|line| line.words.join("|")).collect();
    assert_eq!(words, ["curl|http://a?b=c d|-d|{\n  \"#\": 1}", "curl|-N|x"]);
    assert_eq!((&read[0].says[..], read[1].says.len()), (&["{}".to_owned(), "2".to_owned()][..], 0));
}
