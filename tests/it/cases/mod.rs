//! Faults that people reported in other webhook senders and Postgres queues, each as tests named after its
//! case (`gNN_…`), which fail when the fault comes back. Where a case is one example of a kind, several
//! members of the kind are tried.

mod g01_rolled_back_events;
mod g02_lost_listener;
mod g03_notify_at_commit;
mod g04_idempotency_after_rollback;
mod g05_search_path_and_roles;
mod g06_killed_worker;
mod g07_endless_answer;
mod g08_one_clock;
mod g09_waiting_is_no_timeout;
mod g10_slow_endpoint;
mod g11_outcome_lost;
mod g12_retry_after;
mod g13_pause_holds;
mod g14_count;
mod g15_resume_flood;
mod g16_blocked_backlog;
mod g17_pace;
mod g18_passing_errors;
mod g19_open_transaction;
mod g20_old_snapshot;
mod g21_held_connection;
mod g22_bytes_and_headers;
mod g23_signing;
mod g24_delete_with_backlog;
mod g25_inner_addresses;
mod g26_headers;
mod g27_backoff_arithmetic;
mod g28_dead_connections;
mod g29_redirects;
mod g30_name_lookups;
mod g31_many_start_at_once;
mod g32_transaction_pooling;
#[cfg(target_os = "linux")]
mod g33_clocks;
mod g34_status_table;
