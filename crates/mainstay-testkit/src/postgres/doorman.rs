//! Lets transactions on PostgreSQL wait at a place of the test's choosing: in a mutation, or in their commit.

use crate::stores::Place;
use std::time::Duration;

/// Longer than anybody takes to come to a door.
const PATIENCE: Duration = Duration::from_secs(90);

const ANSWERS: &str = "the test database answers";

/// A connection of its own, which holds the doors that others wait at.
pub struct Doorman(tokio_postgres::Client);

impl Doorman {
    /// A doorman of the database in this place.
    pub async fn new(place: &Place) -> Self {
        let (client, line) =
            tokio_postgres::connect(place.url(), tokio_postgres::NoTls).await.expect(ANSWERS);
        tokio::spawn(line);
        Self(client)
    }

    /// Shuts a door.
    pub async fn shut(&self, door: i64) {
        self.0.execute("SELECT pg_advisory_lock($1)", &[&door]).await.expect(ANSWERS);
    }

    /// Opens a door.
    pub async fn open(&self, door: i64) {
        self.0.execute("SELECT pg_advisory_unlock($1)", &[&door]).await.expect(ANSWERS);
    }

    /// Lets every transaction that inserts into `table` pass a door in its commit.
    pub async fn guard_commits(&self, table: &str, door: i64) {
        let sql = format!(
            "CREATE FUNCTION pass_door() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared({door}); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER pass_door AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION pass_door()"
        );
        self.0.batch_execute(&sql).await.expect(ANSWERS);
    }

    /// Makes what a full disk means for these tables: the server refuses every row, when it is inserted or not before the
    /// commit, with the code that it has for that. Only what is there already can be read and removed.
    pub async fn fill_disk(&self, tables: &[&str], is_seen_late: bool) {
        let refusal = "CREATE OR REPLACE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$";
        self.0.batch_execute(refusal).await.expect(ANSWERS);
        // One by one: whoever held one table while it waits for another would wait in a circle with those who write.
        for table in tables {
            let trigger = match is_seen_late {
                true => format!(
                    "CREATE CONSTRAINT TRIGGER no_room AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
                     FOR EACH ROW EXECUTE FUNCTION no_room()"
                ),
                false => format!(
                    "CREATE TRIGGER no_room BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION no_room()"
                ),
            };
            self.0.batch_execute(&trigger).await.expect(ANSWERS);
        }
    }

    /// Ends what [`fill_disk`](Self::fill_disk) began.
    pub async fn make_room(&self, tables: &[&str]) {
        for table in tables {
            self.0.batch_execute(&format!("DROP TRIGGER no_room ON {table}")).await.expect(ANSWERS);
        }
    }

    /// Waits until so many transactions wait for something that another one holds.
    pub async fn until_waiting(&self, count: i64) {
        let sql = "SELECT count(*) FROM pg_stat_activity \
             WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let waiting = async {
            while self.0.query_one(sql, &[]).await.expect(ANSWERS).get::<_, i64>(0) < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("nobody comes to the door");
    }

    /// Waits until somebody stands at a door. Whoever waits may wait for a neighbour first, and come to the door after that.
    pub async fn until_at_door(&self) {
        let sql = "SELECT count(*) FROM pg_stat_activity \
             WHERE wait_event = 'advisory' AND datname = current_database()";
        let coming = async {
            while self.0.query_one(sql, &[]).await.expect(ANSWERS).get::<_, i64>(0) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, coming).await.expect("nobody comes to the door");
    }

    /// Ends whoever waits at a door, as an administrator does.
    pub async fn turn_away(&self) {
        self.until_at_door().await;
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE wait_event = 'advisory' AND datname = current_database()";
        assert_eq!(self.0.query(sql, &[]).await.expect(ANSWERS).len(), 1);
    }
}
