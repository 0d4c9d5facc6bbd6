//! Keys that are asked for everywhere (item 14).

/// `user:{id}`, or `user:anonymous`.
pub fn user(id: Option<&str>) -> String {
    format!("user:{}", id.unwrap_or("anonymous"))
}

/// `command:{type}`.
pub fn command(command_type: &str) -> String {
    format!("command:{command_type}")
}

/// `user:{id}:{type}`, or `user:anonymous:{type}`.
pub fn user_and_command(id: Option<&str>, command_type: &str) -> String {
    format!("{}:{command_type}", user(id))
}

/// `aggregate:{type}:{id}`, or `aggregate:{type}:unknown`.
pub fn aggregate(aggregate_type: &str, id: Option<&str>) -> String {
    format!("aggregate:{aggregate_type}:{}", id.unwrap_or("unknown"))
}

/// `ip:{address}`, or `ip:unknown`.
pub fn ip(address: Option<&str>) -> String {
    format!("ip:{}", address.unwrap_or("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_014_keys_say_what_they_are_for() {
        assert_eq!((user(Some("alice")), user(None)), ("user:alice".into(), "user:anonymous".into()));
        assert_eq!(command("SubmitOrder"), "command:SubmitOrder");
        assert_eq!(user_and_command(Some("alice"), "SubmitOrder"), "user:alice:SubmitOrder");
        assert_eq!(user_and_command(None, "SubmitOrder"), "user:anonymous:SubmitOrder");
        assert_eq!(aggregate("Order", Some("7")), "aggregate:Order:7");
        assert_eq!(aggregate("Order", None), "aggregate:Order:unknown");
        assert_eq!((ip(Some("::1")), ip(None)), ("ip:::1".into(), "ip:unknown".into()));
    }
}
