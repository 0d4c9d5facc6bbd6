//! What a server sends to those who follow: server-sent events, as the HTML standard has them.

/// Puts lines together to messages.
#[derive(Debug, Default)]
pub(super) struct Parser {
    event: String,
    data: Option<String>,
    id: Option<u64>,
}

/// What a blank line ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its name; empty for an event of the log.
    pub(super) event: String,
    /// What it carries; nothing when only a position was told.
    pub(super) data: Option<String>,
    /// Up to which position everything was sent.
    pub(super) id: Option<u64>,
}

impl Parser {
    /// Takes a line; a blank one ends a message.
    pub(super) fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let Self { event, data, id } = std::mem::take(self);
            let is_empty = data.is_none() && id.is_none();
            return (!is_empty).then_some(Message { event, data, id });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = value.to_owned(),
            "id" => self.id = value.parse().ok().or(self.id),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // A comment, or something of a newer server.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_messages() {
        let text = "retry: 1000\n: epoch 1\n\nid: 7\ndata: {\"a\":1}\n\n: heartbeat\n\n: heartbeat\nid: 9\n\nevent: problem\ndata:{}\ndata: x\n\nid: 10\ndata: cut";
        let mut parser = Parser::default();
        let messages: Vec<Message> = text.lines().filter_map(|line| parser.line(line)).collect();
        let message = |event: &str, data: Option<&str>, id| Message {
            event: event.to_owned(),
            data: data.map(str::to_owned),
            id,
        };
        assert_eq!(
            messages,
            [
                message("", Some("{\"a\":1}"), Some(7)),
                message("", None, Some(9)),
                message("problem", Some("{}\nx"), None)
            ]
        );
    }
}
