//! What a test can plant: errors, swallowed calls, early frees; and what it can read: the log and the counts.

use std::process::Command;

use hurray_cuda_programs::{Run, simulator};

fn rules(program: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rules"));
    command.arg(simulator()).arg(program);
    Run::new(command).devices(2)
}

#[test]
fn a_swallowed_wait_is_a_race() {
    for seed in 0..10 {
        assert!(
            rules("an_event_orders_non_blocking_streams")
                .seed(seed)
                .swallow("cuStreamWaitEvent", 1)
                .run()
                .reported("race")
        );
    }
}

#[test]
fn a_swallowed_record_is_a_race() {
    for seed in 0..10 {
        assert!(
            rules("an_event_orders_non_blocking_streams")
                .seed(seed)
                .swallow("cuEventRecord", 1)
                .run()
                .reported("race")
        );
    }
}

#[test]
fn only_the_call_that_is_meant_is_swallowed() {
    rules("an_event_orders_non_blocking_streams")
        .swallow("cuStreamWaitEvent", 2)
        .run()
        .assert_clean();
    rules("an_event_orders_non_blocking_streams")
        .swallow("cuEventRecord", 2)
        .run()
        .assert_clean();
}

#[test]
fn an_early_free_is_a_use_after_free() {
    let programs = [
        // In another stream's order, in its own stream's, after a wait of the host.
        ("a_free_on_another_stream_waits_for_the_use", 1),
        ("another_stream_waits_for_the_allocation", 1),
        ("pool_memory_can_be_freed_by_the_host", 1),
        ("asynchronous_copies_of_page_locked_memory", 1),
        ("asynchronous_copies_of_page_locked_memory", 2),
        ("asynchronous_copies_of_page_locked_memory", 3),
    ];
    for (program, nth) in programs {
        for seed in 0..10 {
            let outcome = rules(program).seed(seed).free_early(nth).run();
            assert!(
                outcome.reported("use-after-free"),
                "{program}: {outcome:#?}"
            );
        }
    }
}

#[test]
fn a_free_of_what_was_never_used_is_never_too_early() {
    rules("allocations_are_aligned_to_256")
        .free_early(1)
        .run()
        .assert_clean();
}

/// Every call of a program fails in turn: the program ends with that error, at once or later, and never hangs.
#[test]
fn every_call_can_fail() {
    let program = "an_event_orders_non_blocking_streams";
    let calls = rules(program).logged().run().log.len() as u64;
    assert!(calls > 20);
    for nth in 1..=calls {
        let outcome = rules(program).fail("*", nth, 999).run();
        assert!(
            outcome.status.is_some() && !outcome.succeeded(),
            "call {nth}: {outcome:#?}"
        );
        assert!(
            outcome.stderr.contains("CUDA_ERROR_UNKNOWN"),
            "call {nth}: {outcome:#?}"
        );
    }
}

#[test]
fn a_call_fails_where_and_as_it_is_told_to() {
    let outcome = rules("an_event_orders_non_blocking_streams")
        .fail("cuMemAlloc_v2", 2, 2)
        .logged()
        .run();
    assert!(outcome.stderr.contains("CUDA_ERROR_OUT_OF_MEMORY"));
    let codes: Vec<u32> = outcome
        .log
        .iter()
        .filter(|call| call.function == "cuMemAlloc_v2")
        .map(|call| call.result)
        .collect();
    assert_eq!(codes, [0, 2]);
    let all = rules("an_event_orders_non_blocking_streams")
        .fail("cuMemAlloc_v2", "1+", 2)
        .logged()
        .run();
    assert_eq!(all.log.last().map(|call| call.result), Some(2));
}

/// An error that breaks a context stays, as on a device.
#[test]
fn an_error_of_the_device_stays() {
    let outcome = rules("a_call_needs_a_context").fail("cuInit", 1, 100).run();
    assert!(outcome.stderr.contains("CUDA_ERROR_NO_DEVICE"));
    let lost = rules("an_event_orders_non_blocking_streams")
        .fail("cuStreamWaitEvent", 1, 719)
        .logged()
        .run();
    assert!(lost.stderr.contains("CUDA_ERROR_LAUNCH_FAILED"));
}

#[test]
fn no_device_is_an_error_of_init() {
    let outcome = rules("a_call_needs_a_context").devices(0).run();
    assert!(
        outcome.stderr.contains("CUDA_ERROR_NO_DEVICE"),
        "{outcome:#?}"
    );
}

#[test]
fn devices_may_have_no_pools_and_no_peers() {
    let outcome = rules("pool_memory_is_used_in_its_streams_order")
        .pools(false)
        .run();
    assert!(
        outcome.stderr.contains("CUDA_ERROR_NOT_SUPPORTED"),
        "{outcome:#?}"
    );
    rules("peer_access_is_enabled_once")
        .peer(false)
        .run()
        .assert_clean();
    rules("a_peer_copy_needs_no_peer_access")
        .peer(false)
        .run()
        .assert_clean();
}

#[test]
fn the_log_is_in_order_and_the_counts_agree() {
    let outcome = rules("a_stream_runs_in_order").logged().run();
    outcome.assert_clean();
    assert!(
        outcome
            .log
            .iter()
            .map(|call| call.index)
            .eq(1..=outcome.log.len() as u64)
    );
    assert!(
        outcome
            .log
            .iter()
            .all(|call| call.who == "program" && call.result == 0)
    );
    let frees = outcome
        .log
        .iter()
        .filter(|call| call.function == "cuMemFree_v2")
        .count() as u64;
    assert_eq!((frees, outcome.count("cuMemFree_v2").program), (2, 2));
    // One stream synchronize, one synchronous copy, two frees.
    assert_eq!(outcome.count("host-waits").program, 4);
    assert!(outcome.count("peak-bytes-0").program >= 8192);
}

/// A seed is a run: the same calls with the same results.
#[test]
fn a_seed_is_repeatable() {
    let run = |seed| {
        let mut log = rules("a_query_asks_for_the_last_record")
            .seed(seed)
            .logged()
            .run()
            .log;
        for call in &mut log {
            call.arguments.clear();
        }
        log
    };
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
    // And another seed may be another run: a query is answered either way.
    let results: std::collections::BTreeSet<Vec<u32>> = (0..20)
        .map(|seed| run(seed).iter().map(|call| call.result).collect())
        .collect();
    assert!(results.len() > 1);
}

/// Settings that make no sense end the process, so that no test passes for their sake.
#[test]
fn a_setting_that_makes_no_sense_is_refused() {
    for (name, value) in [
        ("HURRAY_SIM_SEED", "x"),
        ("HURRAY_SIM_FAIL", "cuInit:1"),
        ("HURRAY_SIM_SWALLOW", "cuInit:1"),
        ("HURRAY_SIM_EARLY", "cuInit:1"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rules"));
        command
            .arg(simulator())
            .arg("init_comes_first")
            .env(name, value);
        // `Run` clears the variables that it does not set itself.
        let output = command.output().expect("the program runs");
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains(name));
    }
}
