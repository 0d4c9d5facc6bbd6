//! What goes to other contexts, and comes from them.

mod inbox;
mod publications;
mod server;
