//! What limiters in memory hold after ten million keys, each in a process of its own.

use crate::rounds::version;
use crate::table::Table;
use anyhow::{Context, Result, bail, ensure};
use governor::{Quota, RateLimiter};
use mainstay_guards::limits::{Policy, memory};
use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The first argument that makes this program a limiter that is asked for many keys.
pub const COUNT: &str = "guards-resident";

const KEYS: usize = 10_000_000;
/// What a key takes at the most, as the limiter's documentation says.
const BYTES_OF_A_KEY: usize = 100;

/// Prints the table.
pub fn run() -> Result<()> {
    println!(
        "\nMemory: {KEYS} keys, one decision each, from which nobody has recovered; mainstay keeps {} keys at the most, \
         of {BYTES_OF_A_KEY} bytes at the most\n\n- governor {}: as it comes; nobody tells it to forget\n",
        memory::MAX_KEYS,
        version("governor")
    );
    let mut table = Table::new(["what", "keys kept", "cap MB", "resident MB", "peak MB", "ns a key"]);
    for (who, cap) in [("governor", None), ("mainstay", Some(memory::MAX_KEYS * BYTES_OF_A_KEY))] {
        let child = Command::new(std::env::current_exe()?)
            .args([COUNT, who])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(child.status.success(), "{who} ended with {}", child.status);
        let told = String::from_utf8(child.stdout)?;
        let numbers: Vec<u64> = told.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [kept, resident, peak, ns] = numbers[..] else { bail!("{who} told {told:?}") };
        let cap_mb = cap.map_or_else(|| "-".to_owned(), |cap| mb(cap as u64));
        table.add([who.to_owned(), kept.to_string(), cap_mb, mb(resident), mb(peak), ns.to_string()]);
    }
    print!("{}", table.render());
    Ok(())
}

fn mb(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

/// Asks a limiter for all keys; tells how many it keeps, what it holds now and held at the most, and how long a key took.
pub fn count(who: &str) -> Result<()> {
    let before = bytes("VmRSS")?;
    let (kept, took) = match who {
        "governor" => {
            let quota = Quota::per_hour(NonZeroU32::try_from(10)?);
            let governor = RateLimiter::<String, _, _>::keyed(quota);
            let took = ask(|key| governor.check_key(key).is_ok())?;
            (governor.len(), took)
        }
        "mainstay" => {
            let limiter = memory::limiter(Policy::bucket(10.0, 10.0 / 3_600.0)?);
            let took = ask(|key| limiter.consume_now(key, 1).is_ok_and(|decision| decision.allowed))?;
            (limiter.keys(), took)
        }
        _ => bail!(crate::USAGE),
    };
    let (now, peak) = (bytes("VmRSS")?, bytes("VmHWM")?);
    println!("{kept} {} {} {took}", now.saturating_sub(before), peak.saturating_sub(before));
    // Taking down a large map would only take time.
    std::process::exit(0);
}

/// The nanoseconds of a decision.
fn ask(take: impl Fn(&String) -> bool) -> Result<u64> {
    let began = Instant::now();
    for number in 0..KEYS {
        ensure!(take(&format!("user:{number}")), "a new key was denied");
    }
    Ok(began.elapsed().as_nanos() as u64 / KEYS as u64)
}

/// A line of what Linux tells of this process.
fn bytes(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kilobytes * 1_024)
}
