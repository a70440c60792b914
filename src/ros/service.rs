//! One service: requests as they come, and answers that can't end the node.

use anyhow::anyhow;
use futures::{FutureExt, Stream, StreamExt};
use r2r::{QosProfile, ServiceRequest, WrappedServiceTypeSupport};

/// A service and the requests that wait.
pub struct Service<T: WrappedServiceTypeSupport> {
    name: &'static str,
    requests: Box<dyn Stream<Item = ServiceRequest<T>> + Unpin>,
}

impl<T: WrappedServiceTypeSupport + 'static> Service<T> {
    /// Offers the service `name` (relative to the node).
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut r2r::Node, name: &'static str) -> anyhow::Result<Self> {
        let requests = node
            .create_service::<T>(&format!("~/{name}"), QosProfile::services_default())
            .map_err(|error| anyhow!("service ~/{name}: {error}"))?;
        Ok(Self { name, requests: Box::new(requests) })
    }

    /// The next request, if one has come.
    pub fn next(&mut self) -> Option<ServiceRequest<T>> {
        self.requests.next().now_or_never().flatten()
    }

    /// Answers all requests that have come.
    pub fn serve(&mut self, mut answer: impl FnMut(&T::Request) -> T::Response) {
        while let Some(request) = self.next() {
            let response = answer(&request.message);
            respond(self.name, request, response);
        }
    }
}

/// Sends an answer; a client that has gone is no reason to end.
pub fn respond<T>(name: &str, request: ServiceRequest<T>, response: T::Response)
where
    T: WrappedServiceTypeSupport + 'static,
{
    if let Err(error) = request.respond(response) {
        tracing::warn!("~/{name}: the answer was not sent: {error}");
    }
}
