//! The SQL that authors may rely on: each line here works alike on both databases.
