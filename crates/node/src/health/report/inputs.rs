//! Statuses of what comes in.

use std::time::Duration;

use super::{GRACE, Level, Status, hindered, names, remedy_of_silence, silence};
use crate::health::topic::Loss;
use crate::health::{Cause, Facts, Kind, Publisher, Topic};
use forecloud::robot::kinematics::RobotMode;

/// Share of lost messages that is worth a warning, and the one that is an error.
const WARN_LOSS: f64 = 0.05;
const ERROR_LOSS: f64 = 0.5;
/// Lost messages that are worth a warning at least.
const MIN_LOST: u64 = 3;
/// Times that time was set back within the last seconds from which on it is no restart.
const MANY_JUMPS: u64 = 3;

/// Whether so much is lost that it is worth a word.
pub fn is_losing(loss: Loss) -> bool {
    loss.lost >= MIN_LOST && loss.lost as f64 > WARN_LOSS * (loss.lost + loss.came) as f64
}

/// Error of a moving camera's pose in a step (mm) that real ones keep below.
const BAD_TF_MM: f64 = 10.0;

impl Facts {
    fn of_kind(&self, kinds: &[Kind]) -> impl Iterator<Item = &Topic> + Clone {
        self.topics.iter().filter(move |topic| kinds.contains(&topic.kind))
    }

    /// Which required image topics are silent, and since when.
    pub(super) fn images(&self, now: Duration) -> Status {
        let topics = self.of_kind(&[Kind::Images, Kind::Calibration]);
        let mut status = self.silence(Status::new("images"), topics.clone(), now);
        topics.clone().for_each(|topic| {
            let text = match topic.last {
                None => "no message".to_owned(),
                Some(last) => format!(
                    "{:.1} Hz, {} messages, the last one {:.1} s ago",
                    topic.rate_hz(now),
                    topic.n_messages,
                    now.saturating_sub(last).as_secs_f64()
                ),
            };
            status.value(topic.name.as_str(), text);
        });
        let (n, n_unheard) =
            (topics.clone().count(), topics.filter(|topic| topic.last.is_none()).count());
        status.or_summary(|| match n_unheard {
            0 => format!("messages on all {n} topics"),
            _ => format!("waiting for the first messages on {n_unheard} of {n} topics"),
        })
    }

    fn silence<'a>(
        &self,
        mut status: Status,
        topics: impl Iterator<Item = &'a Topic>,
        now: Duration,
    ) -> Status {
        let silent: Vec<&Topic> =
            topics.filter(|topic| topic.is_needed() && topic.is_silent(now)).collect();
        if !silent.is_empty() {
            let (which, remedy) = (silence(&silent, now), remedy_of_silence(&silent));
            let level = hindered(now, self.last_frame);
            status.add(level, format!("no message on {which}. {remedy}"));
        }
        status
    }

    /// Cameras left out; images that do not fit each other.
    pub(super) fn cameras(&self, now: Duration) -> Status {
        let mut status = Status::new("cameras");
        if !self.absent_cameras.is_empty() {
            status.add(
                Level::Warn,
                format!(
                    "frames are made without {}: {}. Remedy: see the status 'images'; a camera \
                     that sends again is taken back",
                    self.absent_cameras.join(", "),
                    self.troubles[Cause::LeftOut as usize].said.text()
                ),
            );
        }
        for cause in [Cause::Calibration, Cause::Image, Cause::Unpaired, Cause::Late] {
            self.add_trouble(&mut status, now, cause, self.last_frame);
        }
        status.value("frames", self.frames.total());
        status.value("images_unpaired", self.total(Cause::Unpaired));
        status.value("frames_late", self.total(Cause::Late));
        status.or_summary(|| format!("{} frames in the last 5 s", self.frames.sum(now)))
    }

    /// Between which frames a transform is missing, and whether the world frame moves.
    pub(super) fn transforms(&self, now: Duration) -> Status {
        let mut status = Status::new("transforms");
        self.add_trouble(&mut status, now, Cause::Transform, self.last_frame);
        self.moving_world.iter().for_each(|text| status.add(Level::Warn, text));
        status.value("frames_dropped", self.total(Cause::Transform));
        self.add_pose_errors(&mut status, now);
        status.or_summary(|| format!("no transform to '{}' is missing", self.about.world_frame))
    }

    /// Adds by how much tf of moving cameras errs, where that was seen in the last seconds.
    fn add_pose_errors(&self, status: &mut Status, now: Duration) {
        let [n, tenths_mm, hundredths] = self.pose_errors.each_ref().map(|sum| sum.sum(now));
        if n == 0 {
            return;
        }
        let mean_mm = tenths_mm as f64 / n as f64 / 10.0;
        let mean_degrees = hundredths as f64 / n as f64 / 100.0;
        status.value("moving_camera_error_mm", format!("{mean_mm:.1}"));
        status.value("moving_camera_error_degrees", format!("{mean_degrees:.2}"));
        if mean_mm > BAD_TF_MM {
            let text = format!(
                "tf of a moving camera is off by {mean_mm:.0} mm a step (mean of {n} frames in the last 5 s); that \
                 is taken out of the scene's motion, but what the camera sees still lies wrong. Remedy: \
                 calibrate where the camera is mounted, stamp its images when they are taken, publish tf \
                 more often"
            );
            status.add(Level::Warn, text);
        }
    }

    /// Whether joint states arrive, all of them, at the time of the images.
    pub(super) fn joints(&self, now: Duration) -> Status {
        let mut status = Status::new("joints");
        let is_wanted = match self.about.robot {
            RobotMode::Required => true,
            RobotMode::Optional => self.robot.in_use.is_some(),
            RobotMode::None => false,
        };
        if !is_wanted {
            return status.or_summary(|| "there is no robot".into());
        }
        let topics = self.of_kind(&[Kind::Joints]);
        status = self.silence(status, topics, now);
        self.add_trouble(&mut status, now, Cause::Joints, self.last_prediction);
        status.value("frames_dropped", self.total(Cause::Joints));
        status.or_summary(|| "joint states arrive".into())
    }

    /// Whether a usable description of the robot came.
    pub(super) fn robot_description(&self, now: Duration) -> Status {
        let mut status = Status::new("robot description");
        if self.about.robot == RobotMode::None {
            return status
                .or_summary(|| "there is no robot: the parameter or the model says so".into());
        }
        let in_use = self.robot.in_use.as_ref();
        let is_needed = in_use.is_none() && self.about.robot == RobotMode::Required;
        let unfit = if is_needed { Level::Error } else { Level::Warn };
        if let Some(refused) = &self.robot.refused {
            let after = if in_use.is_some() { ": the one before is used" } else { "" };
            status.add(unfit, format!("the newest one can't be used{after}: {refused}"));
        } else if in_use.is_none() && now > GRACE {
            let topics: Vec<&Topic> = self.of_kind(&[Kind::Robot]).collect();
            let without = match is_needed {
                true => "",
                false => " (predictions go on without it; robot: none says that there is none)",
            };
            status.add(
                unfit,
                format!(
                    "none has come on {}{without}. Remedy: start robot_state_publisher, or publish \
                     the URDF reliably and transient local (latched)",
                    silence(&topics, now)
                ),
            );
        }
        let lacking = &self.troubles[Cause::Robot as usize];
        if lacking.recent.sum(now) > 0 {
            status.add(Level::Warn, lacking.said.text());
        }
        for (i, remark) in in_use.into_iter().flatten().enumerate() {
            status.value(format!("remark {}", i + 1), remark);
        }
        status.value("frames_without_robot", self.total(Cause::Robot));
        status.or_summary(|| match in_use {
            Some(_) => "received".into(),
            None => "waiting for it".into(),
        })
    }

    /// Whether the model gets the plan that it takes.
    pub(super) fn plan(&self, now: Duration) -> Status {
        let mut status = Status::new("plan");
        if self.about.robot == RobotMode::None {
            return status.or_summary(|| "the model takes none".into());
        }
        let is_wanted = self.about.robot == RobotMode::Required || self.robot.in_use.is_some();
        // What came before the plan in force is over.
        let is_without = !self.is_planned && self.without_plan.sum(now) > 0;
        let unheard = || self.of_kind(&[Kind::Plan]).filter(|topic| topic.last.is_none());
        if is_wanted && (is_without || now > GRACE && unheard().next().is_some()) {
            let topics: Vec<&Topic> = self.of_kind(&[Kind::Plan]).collect();
            status.add(
                Level::Warn,
                format!(
                    "no plan on {}: predictions assume that the joints keep their velocity. \
                     Remedy: publish what the robot is about to do there \
                     (trajectory_msgs/msg/JointTrajectory), as it is sent to its controller, or let \
                     the plan relay do it (relay:=CONTROLLER at the launch; docs/src/guide/robot.md)",
                    silence(&topics, now)
                ),
            );
        }
        let n_messages: u64 = self.of_kind(&[Kind::Plan]).map(|topic| topic.n_messages).sum();
        status.value("messages", n_messages);
        status.value("predictions_without", self.without_plan.total());
        status.or_summary(|| if is_wanted { "plans arrive" } else { "no robot is known" }.into())
    }

    /// Whether time was set back.
    pub(super) fn time(&self, now: Duration) -> Status {
        let mut status = Status::new("time");
        let trouble = &self.troubles[Cause::TimeJump as usize];
        let n = trouble.recent.sum(now);
        if n >= MANY_JUMPS {
            status.add(
                Level::Error,
                format!(
                    "{n} times in the last 5 s: {}. Remedy: two publishers of one topic use \
                     different clocks: stop one, or give all of them the same use_sim_time",
                    trouble.said.text()
                ),
            );
        } else if n > 0 {
            status.add(
                Level::Warn,
                format!(
                    "{}. Remedy: none if a recording or a simulation was started again; otherwise \
                     synchronise the publishers' clocks",
                    trouble.said.text()
                ),
            );
        }
        status.value("time_jumps", trouble.recent.total());
        status.or_summary(|| "no jumps back".into())
    }

    /// Messages that can't be used.
    pub(super) fn messages(&self, now: Duration) -> Status {
        let mut status = Status::new("messages");
        for topic in &self.topics {
            let n = topic.bad.sum(now);
            if n > 0 {
                status.add(
                    hindered(now, self.last_frame),
                    format!(
                        "{n} bad ones on {} in the last 5 s: {}. Remedy: correct their publisher",
                        topic.name,
                        topic.said.text()
                    ),
                );
            }
            if topic.bad.total() > 0 {
                status.value(topic.name.as_str(), topic.bad.total());
            }
        }
        status.or_summary(|| "all were usable".into())
    }

    /// Types and QoS of the publishers.
    pub(super) fn publishers_status(&self) -> Status {
        let mut status = Status::new("topics");
        for topic in &self.topics {
            for Publisher { node, mismatch } in topic.publishers.iter().flatten() {
                if let Some(mismatch) = mismatch {
                    status.add(Level::Warn, format!("{} of {node} {mismatch}", topic.name));
                }
            }
            if let Some(publishers) = &topic.publishers {
                status.value(topic.name.as_str(), names(publishers));
            }
        }
        status.or_summary(|| "types and QoS of all publishers match".into())
    }

    /// Messages that were sent and did not arrive.
    pub(super) fn transport(&self, now: Duration) -> Status {
        let mut status = Status::new("transport");
        let (mut level, mut losing) = (Level::Ok, Vec::new());
        for topic in self.of_kind(&[Kind::Images]) {
            let loss = self.loss(now, topic);
            let n_sent = loss.lost + loss.came;
            status.value(topic.name.as_str(), format!("{} of {n_sent} lost", loss.lost));
            if is_losing(loss) {
                let most = loss.lost as f64 > ERROR_LOSS * n_sent as f64;
                level = level.max(if most { Level::Error } else { Level::Warn });
                losing.push(format!("{} of {n_sent} on {}", loss.lost, topic.name));
            }
        }
        if !losing.is_empty() {
            status.add(
                level,
                format!(
                    "messages of the last 5 s were lost before the node, in DDS or by their \
                     publisher: {} (judging by the gaps in their stamps and by their camera_info). \
                     Remedy: start their publisher with the DDS profile \
                     config/fastdds_large_clouds.xml, or let it send smaller or fewer images",
                    losing.join(", ")
                ),
            );
        }
        status.or_summary(|| "no gaps in the stamps of the last 5 s".into())
    }

    fn total(&self, cause: Cause) -> u64 {
        self.troubles[cause as usize].recent.total()
    }
}
