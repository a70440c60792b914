//! One service: requests as they come, and answers that can't end the node.

use anyhow::Context;
use futures::{FutureExt, Stream, StreamExt};
use r2r::{QosProfile, ServiceRequest, WrappedServiceTypeSupport};

/// Messages or requests as they come.
pub type Incoming<T> = Box<dyn Stream<Item = T> + Unpin>;

/// The next message or request, if one has come.
pub fn next<T>(incoming: &mut Incoming<T>) -> Option<T> {
    incoming.next().now_or_never().flatten()
}

/// Requests that the middleware keeps for us, and answers that it keeps for who has not received them yet.
/// With the default of 10 of each, the eleventh of a burst pushes the first out, and nobody is told.
const KEPT: usize = 100;

/// A service and the requests that wait.
pub struct Service<T: WrappedServiceTypeSupport> {
    name: String,
    requests: Incoming<ServiceRequest<T>>,
}

impl<T: WrappedServiceTypeSupport + 'static> Service<T> {
    /// Offers the service `name`.
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut r2r::Node, name: impl Into<String>) -> anyhow::Result<Self> {
        let name = name.into();
        let qos = QosProfile::services_default().keep_last(KEPT);
        let requests = node.create_service::<T>(&name, qos);
        let requests = requests.with_context(|| format!("service {name}"))?;
        Ok(Self { name, requests: Box::new(requests) })
    }

    /// The next request, if one has come.
    pub fn next(&mut self) -> Option<ServiceRequest<T>> {
        next(&mut self.requests)
    }

    /// Answers all requests that have come.
    pub fn serve(&mut self, mut answer: impl FnMut(&T::Request) -> T::Response) {
        while let Some(request) = self.next() {
            let response = answer(&request.message);
            respond(&self.name, request, response);
        }
    }
}

/// Sends an answer; whether that could be done. A client that has gone is no reason to end.
pub fn respond<T>(name: &str, request: ServiceRequest<T>, response: T::Response) -> bool
where
    T: WrappedServiceTypeSupport + 'static,
{
    let sent = request.respond(response);
    sent.inspect_err(|error| tracing::warn!("{name}: could not send the answer: {error}")).is_ok()
}
