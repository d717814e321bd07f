//! What a test asks of the simulator, read from the environment once.

use std::env;
use std::path::PathBuf;

use crate::inject::Injections;

/// The settings of one process.
pub(crate) struct Config {
    /// Where `report`, `counts` and `log` go; `None` sends reports to stderr.
    pub(crate) out: Option<PathBuf>,
    /// Whether every call is logged.
    pub(crate) log: bool,
    /// The seed of every choice that the driver's documentation leaves open.
    pub(crate) seed: u64,
    /// How many devices there are.
    pub(crate) devices: u32,
    /// Whether devices can reach each other's memory.
    pub(crate) peer: bool,
    /// Bytes of memory of each device.
    pub(crate) memory: usize,
    /// Whether devices have stream-ordered pools.
    pub(crate) pools: bool,
    /// Operations that a stream's queue holds.
    pub(crate) queue: usize,
    /// What `cuDriverGetVersion` answers.
    pub(crate) version: i32,
    /// How the reclaimer's thread is named.
    pub(crate) reclaimer: String,
    /// Planted errors and defects.
    pub(crate) injections: Injections,
}

impl Config {
    pub(crate) fn from_environment() -> Self {
        Self {
            out: env::var_os("HURRAY_SIM_OUT").map(PathBuf::from),
            log: number("HURRAY_SIM_LOG", 0) != 0,
            seed: number("HURRAY_SIM_SEED", 0),
            devices: u32::try_from(number("HURRAY_SIM_DEVICES", 1)).unwrap_or(1),
            peer: number("HURRAY_SIM_PEER", 1) != 0,
            memory: usize::try_from(number("HURRAY_SIM_MEMORY", 1 << 30)).unwrap_or(1 << 30),
            pools: number("HURRAY_SIM_POOLS", 1) != 0,
            queue: usize::try_from(number("HURRAY_SIM_QUEUE", 256))
                .unwrap_or(256)
                .max(1),
            version: i32::try_from(number("HURRAY_SIM_DRIVER", 13040)).unwrap_or(13040),
            reclaimer: env::var("HURRAY_SIM_RECLAIMER")
                .unwrap_or_else(|_| "hurray-reclaim".to_owned()),
            injections: Injections::from_environment(),
        }
    }
}

/// The number in a variable. A setting that cannot be read would make a test pass for the wrong reason, so it ends the process.
fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Err(_) => default,
        Ok(text) => text.trim().parse().unwrap_or_else(|_| refuse(name, &text)),
    }
}

/// Ends the process over a setting that makes no sense.
pub(crate) fn refuse(name: &str, text: &str) -> ! {
    eprintln!("cuda-sim: {name}={text:?} makes no sense");
    std::process::abort();
}
