//! Contacts as messages, and as what RViz shows.

use r2r::builtin_interfaces::msg::Duration;
use r2r::forecloud::msg::{Contact as ContactMsg, Contacts as ContactsMsg};
use r2r::geometry_msgs::msg::{Point, Pose, Quaternion, Vector3};
use r2r::std_msgs::msg::{ColorRGBA, Header};
use r2r::visualization_msgs::msg::{Marker, MarkerArray};

use forecloud::predict::contacts::{Contact, Contacts};

/// Diameter of a contact's ball (m), and height of its letters.
const BALL_M: f64 = 0.03;
const LETTERS_M: f64 = 0.03;
/// How long a ball is shown, if nothing newer comes (ns).
const LIFETIME_NS: u32 = 500_000_000;

/// `~/contact` of a prediction.
pub(super) fn contacts(contacts: &Contacts, header: Header) -> ContactsMsg {
    let state = match contacts.has_robot {
        true => ContactsMsg::PREDICTED as u8,
        false => ContactsMsg::NO_ROBOT as u8,
    };
    let message = |contact: &Contact| {
        let [x, y, z] = contact.place.map(f64::from);
        ContactMsg {
            link: contact.link.clone(),
            object: contact.object.unwrap_or(u64::from(ContactMsg::SCENE as u8)),
            time_to_contact: contact.time_secs,
            min_distance: contact.min_distance_m,
            place: Point { x, y, z },
            probability: contact.probability,
        }
    };
    ContactsMsg {
        header,
        state,
        horizon: contacts.horizon_secs,
        contacts: contacts.contacts.iter().map(message).collect(),
    }
}

/// The same once nothing of it holds any more.
pub(super) fn stale(last: ContactsMsg) -> ContactsMsg {
    ContactsMsg { state: ContactsMsg::STALE as u8, contacts: Vec::new(), ..last }
}

/// `control_msgs/msg/SpeedScalingFactor`, serialized: one float64.
pub(super) fn factor(scale: f64) -> Vec<u8> {
    [&[0, 1, 0, 0][..], &scale.to_le_bytes()].concat()
}

/// A ball and its words for each contact, from yellow to red by probability; what was shown before goes.
pub(super) fn markers(contacts: &ContactsMsg) -> MarkerArray {
    let all = Marker {
        header: contacts.header.clone(),
        ns: "contact".into(),
        action: Marker::DELETEALL as i32,
        ..Marker::default()
    };
    let shown = contacts.contacts.iter().zip(0..).flat_map(|(contact, i)| {
        let marker = |id, type_: i32, scale: f64, up_m: f64| Marker {
            header: contacts.header.clone(),
            ns: "contact".into(),
            id,
            type_,
            action: Marker::ADD as i32,
            pose: Pose {
                position: Point { z: contact.place.z + up_m, ..contact.place.clone() },
                orientation: Quaternion { w: 1.0, ..Quaternion::default() },
            },
            scale: Vector3 { x: scale, y: scale, z: scale },
            color: ColorRGBA { r: 1.0, g: (1.0 - contact.probability).max(0.0), b: 0.0, a: 1.0 },
            lifetime: Duration { sec: 0, nanosec: LIFETIME_NS },
            ..Marker::default()
        };
        let text = format!(
            "{} in {:.2} s, {:.0} %",
            contact.link,
            contact.time_to_contact,
            100.0 * contact.probability
        );
        [
            marker(2 * i, Marker::SPHERE as i32, BALL_M, 0.0),
            Marker {
                text,
                ..marker(2 * i + 1, Marker::TEXT_VIEW_FACING as i32, LETTERS_M, BALL_M)
            },
        ]
    });
    MarkerArray { markers: std::iter::once(all).chain(shown).collect() }
}
