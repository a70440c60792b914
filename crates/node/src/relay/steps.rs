//! What becomes of a goal, step by step: it goes to the controller, is accepted, and ends.

use std::time::Instant;

use r2r::action_msgs::msg::GoalStatus;

use super::super::action::uuid;
use super::action::Relayed;
use super::controller::{Names, World};
use super::goals::{Goal, Stage, respond};
use super::link::{Accepted, Link, poll};

/// The status of a goal that a controller does not know.
pub const UNKNOWN: i8 = GoalStatus::STATUS_UNKNOWN as i8;

/// What became of a goal.
pub enum Step {
    /// It stays where it is, or went a stage further.
    Stay,
    /// The controller does not answer.
    Dead,
    /// It answers, and knows nothing of the goal.
    Forgotten,
    /// It does not take it.
    Rejected,
}

/// A goal's next step, if it is time for it.
pub fn next_step<T: Relayed>(
    goal: &mut Goal<T>,
    link: &mut Link<T>,
    is_there: bool,
    names: &Names,
    world: &mut World,
) -> Step {
    let is_late = world.now.saturating_duration_since(goal.since) > names.timeout;
    match &mut goal.stage {
        Stage::Waiting(..) if is_there => forward(goal, link, world.now),
        Stage::Waiting(..) if is_late => Step::Dead,
        Stage::Sent(_, _, answer) => match poll(answer) {
            Some(Ok(answer)) => {
                link.heard(world.now);
                answered(goal, answer, link, names, world)
            }
            None if !is_late => Step::Stay,
            _ => Step::Dead,
        },
        Stage::Running(..) => watch(goal, link, names, world),
        _ => Step::Stay,
    }
}

/// Sends a goal that waited for the controller.
fn forward<T: Relayed>(goal: &mut Goal<T>, link: &Link<T>, now: Instant) -> Step {
    let Stage::Waiting(request, motion) = &mut goal.stage else { return Step::Stay };
    let (id, sent) = T::destructure_goal_request_msg(request.message.clone());
    match link.send_goal(id, sent) {
        Ok(answer) => {
            goal.stage = Stage::Sent(request.clone(), motion.take(), answer);
            goal.since = now;
            Step::Stay
        }
        Err(_) => Step::Dead,
    }
}

/// The controller took the goal, or did not; its client hears it in the controller's words.
fn answered<T: Relayed>(
    goal: &mut Goal<T>,
    answer: Accepted<T>,
    link: &Link<T>,
    names: &Names,
    world: &mut World,
) -> Step {
    let Stage::Sent(request, motion, _) = &mut goal.stage else { return Step::Stay };
    let (request, motion) = (request.clone(), motion.take());
    let (is_accepted, _) = T::destructure_goal_response_msg(answer.clone());
    if !is_accepted {
        respond(request, answer);
        return Step::Rejected;
    }
    // From here on it moves: the plan first.
    world.planner.start(names.index, goal.id, motion, T::is_scaled(), world.stamp);
    match link.get_result(uuid(&goal.id)) {
        Ok(result) => {
            goal.stage = Stage::Running(result, None, world.now);
            goal.since = world.now;
            respond(request, answer);
            Step::Stay
        }
        Err(_) => Step::Dead,
    }
}

/// Whether a running goal has ended, or its controller has.
fn watch<T: Relayed>(
    goal: &mut Goal<T>,
    link: &mut Link<T>,
    names: &Names,
    world: &mut World,
) -> Step {
    let now = world.now;
    let Stage::Running(first, again, asked) = &mut goal.stage else { return Step::Stay };
    let result = poll(first).or_else(|| again.as_mut().and_then(poll));
    match result {
        Some(Ok(result)) => {
            link.heard(now);
            if T::destructure_result_response_msg(result.clone()).0 == UNKNOWN {
                return Step::Forgotten;
            }
            world.planner.end(&goal.id, world.stamp);
            goal.finish(result);
            Step::Stay
        }
        Some(Err(_)) => Step::Dead,
        None if link.silent(now) > names.timeout => Step::Dead,
        None => {
            if now.saturating_duration_since(*asked) > names.timeout {
                (*again, *asked) = (link.get_result(uuid(&goal.id)).ok(), now);
            }
            Step::Stay
        }
    }
}

/// What it means that a controller does not know a goal that it executed, and what to do.
pub fn forgotten(action: &str) -> String {
    format!(
        "{action} no longer knows the goal: the controller was restarted while it executed it. \
         Remedy: send the goal again"
    )
}
