//! What waits for the planning thread, and what it works on: for those who wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::action::part;
use super::planning::Task;
use super::services::ENDING;

/// Requests that wait while one is worked on; further ones are refused.
const MAX_WAITING: usize = 16;
/// Others wait so long behind one request before the log tells.
const LONG: Duration = Duration::from_secs(10);

/// What the planning thread works on.
#[derive(Debug, Clone, Copy)]
struct Current {
    name: &'static str,
    /// What its client asked for (s); 0 for none.
    budget_secs: f64,
    since: Instant,
    /// Whether the log has told that others wait.
    is_logged: bool,
}

/// How the planning thread is kept busy, shared with those who hand it work.
#[derive(Default)]
pub struct Load {
    n_waiting: AtomicUsize,
    current: Mutex<Option<Current>>,
}

impl Load {
    /// A task that waited is begun.
    pub fn begin(&self, name: &'static str, budget_secs: f64) {
        self.n_waiting.fetch_sub(1, Ordering::Relaxed);
        let since = Instant::now();
        *self.lock() = Some(Current { name, budget_secs, since, is_logged: false });
    }

    /// It has ended.
    pub fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to the thread that judges and finds plans.
pub struct Tasks {
    sender: Sender<Task>,
    load: Arc<Load>,
    /// What `~/plan` is called.
    plan: String,
}

impl Tasks {
    /// Tasks go to `sender`, whose receiver keeps `load`; `plan` is the name of the action.
    pub fn new(sender: Sender<Task>, load: Arc<Load>, plan: String) -> Self {
        Self { sender, load, plan }
    }

    /// Hands a task on; gives it back with the reason where too many wait, or the thread has gone.
    pub fn give(&self, task: Task) -> Result<(), (Box<Task>, String)> {
        if self.load.n_waiting.load(Ordering::Relaxed) >= MAX_WAITING {
            return Err((Box::new(task), self.busy()));
        }
        self.load.n_waiting.fetch_add(1, Ordering::Relaxed);
        self.sender.send(task).map_err(|back| (Box::new(back.0), ENDING.into()))
    }

    /// So many tasks that were handed on have ended before they were begun.
    pub fn withdraw(&self, n: usize) {
        self.load.n_waiting.fetch_sub(n, Ordering::Relaxed);
    }

    /// Tells, once for each task, that others wait long behind it.
    pub fn watch(&self) {
        let n_waiting = self.load.n_waiting.load(Ordering::Relaxed);
        let mut current = self.load.lock();
        if let Some(current) = current.as_mut()
            && n_waiting > 0
            && !current.is_logged
            && current.since.elapsed() > LONG
        {
            current.is_logged = true;
            tracing::warn!("{}; {n_waiting} more wait{}", current.describe(), self.remedy(current));
        }
    }

    fn busy(&self) -> String {
        let current = *self.load.lock();
        let told = current.map(|current| format!(": {}", current.describe())).unwrap_or_default();
        let remedy = current.map(|current| self.remedy(&current)).unwrap_or_default();
        format!(
            "busy with earlier requests{told}; {MAX_WAITING} more wait: try again later{remedy}"
        )
    }

    /// Also for a client that has died: nobody else would end its goal before its time.
    fn remedy(&self, current: &Current) -> String {
        match current.name {
            "~/plan" => format!(
                ". To cancel it: ros2 service call {} action_msgs/srv/CancelGoal",
                part(&self.plan, "cancel_goal")
            ),
            _ => String::new(),
        }
    }
}

impl Current {
    fn describe(&self) -> String {
        let Self { name, budget_secs, since, .. } = self;
        let secs = since.elapsed().as_secs_f64();
        format!("{name} has been working on a request for {secs:.1} s (budget_secs {budget_secs})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_for_what_and_how_it_ends() {
        let (sender, _tasks) = std::sync::mpsc::channel();
        let load = Arc::new(Load::default());
        let tasks = Tasks::new(sender, load.clone(), "/robot/forecloud/plan".into());
        assert!(tasks.busy().starts_with("busy with earlier requests; 16 more wait"));
        load.n_waiting.store(2, Ordering::Relaxed);
        load.begin("~/plan", 0.0);
        let since = Instant::now().checked_sub(2 * LONG).unwrap();
        load.lock().as_mut().unwrap().since = since;
        let told = tasks.busy();
        for words in [
            "~/plan has been working on a request for 20.",
            "budget_secs 0",
            "ros2 service call /robot/forecloud/plan/_action/cancel_goal",
        ] {
            assert!(told.contains(words), "{told}");
        }
        tasks.watch();
        assert!(load.lock().unwrap().is_logged, "one waits behind it");
        load.begin("~/evaluate", 1.0);
        assert!(!tasks.busy().contains("cancel"), "a service can't be cancelled");
        load.lock().as_mut().unwrap().since = since;
        tasks.watch();
        assert!(!load.lock().unwrap().is_logged, "nobody waits");
        load.n_waiting.store(MAX_WAITING, Ordering::Relaxed);
        tasks.withdraw(MAX_WAITING);
        assert_eq!(load.n_waiting.load(Ordering::Relaxed), 0);
        load.end();
        assert!(load.lock().is_none());
    }
}
