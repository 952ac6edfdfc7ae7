//! The door: who asks, what for, and which tenant's routes answer.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use pilotlight_wire::serve::{Incoming, Peer};
use serde_json::json;
use tower_service::Service;

use super::audit::Audit;
use super::cors::{self, Cors};
use super::oidc::{Identity, Verifier, is_jwt};
use super::{Access, Denied, Grant, Scope, Shown, Tenant, scope, secret};
use crate::api::{ApiError, App, status};
use crate::env::Env;
use crate::metrics;

/// Stands before all routes.
pub struct Front {
    /// The rules.
    pub access: Access,
    /// Routes by tenant.
    pub routers: HashMap<String, Router>,
    /// What the routes work on, by tenant.
    pub apps: Vec<(String, Arc<App>)>,
    /// Tokens of an issuer.
    pub oidc: Option<Verifier>,
    /// Where reads are noted.
    pub audit: Option<Audit>,
    /// Pages of other hosts that may ask.
    pub cors: Cors,
    /// Time.
    pub env: Arc<dyn Env>,
    /// Refusals by reason.
    pub refused: Refused,
}

/// Refusals by reason.
#[derive(Default)]
pub struct Refused(Mutex<BTreeMap<&'static str, u64>>);

impl Refused {
    fn count(&self, reason: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(reason).or_default() += 1;
    }

    /// Reason and count.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .map(|(&reason, &count)| (reason, count))
            .collect()
    }
}

impl Front {
    /// Answers one request.
    pub async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let Some(origin) = self.cors.allowed(request.headers()) else {
            return self.judged(request).await;
        };
        let mut answer = if cors::is_question(request.method(), request.headers()) {
            cors::yes()
        } else {
            // It may ask as our own page does; a password that the browser sends by itself is none of its.
            match same_site(request.method(), request.headers()) {
                Ok(()) => {
                    request.headers_mut().remove(header::ORIGIN);
                    self.judged(request).await?
                }
                Err(denied) => refusal(denied),
            }
        };
        cors::mark(&mut answer, origin);
        Ok(answer)
    }

    async fn judged(self: Arc<Self>, request: Request<Incoming>) -> Result<Response, Infallible> {
        let peer = request.extensions().get::<Peer>();
        let has_certificate = peer.is_some_and(|peer| peer.certificate.is_some());
        let peer = peer.map(|peer| peer.address.to_string());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let token = match scope::needed(&method, uri.path()) {
            Some(_) => secret(request.headers()).ok().flatten(),
            None => None,
        };
        let identity = match self.identity(token).await {
            Ok(identity) => identity,
            Err(denied) => {
                self.refused.count(denied.reason);
                return Ok(refusal(denied));
            }
        };
        let shown = Shown {
            certificate: has_certificate,
            identity: identity.as_ref(),
        };
        let headers = request.headers();
        let judged = self.access.judge(&method, uri.path(), headers, shown);
        let judged = judged.and_then(|grant| {
            same_site(&method, headers)?;
            Ok(grant)
        });
        match judged {
            Ok(grant) => {
                let answer = match uri.path() {
                    "/metrics" if grant.of_all => self.metrics(),
                    "/ready" | "/readyz" => self.routed(self.least_ready(), request).await,
                    _ => self.routed(grant.tenant, request).await,
                };
                self.note(&method, &uri, peer, &grant, answer.status());
                Ok(answer)
            }
            Err(denied) => {
                self.refused.count(denied.reason);
                Ok(refusal(denied))
            }
        }
    }

    /// Who an issuer says is asking.
    async fn identity(&self, token: Option<String>) -> Result<Option<Identity>, Denied> {
        match (&self.oidc, token) {
            (Some(oidc), Some(token)) if is_jwt(&token) => oidc.identify(&token).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn routed(&self, tenant: &str, mut request: Request<Incoming>) -> Response {
        request.extensions_mut().insert(Tenant(tenant.to_owned()));
        match self.routers.get(tenant).cloned() {
            // Without a layer that waits, a router is always ready.
            Some(mut router) => match router.call(request.map(Body::new)).await {
                Ok(answer) => answer,
            },
            None => ApiError::new(StatusCode::FORBIDDEN, "no such tenant").into_response(),
        }
    }

    /// The tenant whose store is still being read; the server is ready when all are.
    fn least_ready(&self) -> &str {
        let waits = |(_, app): &&(String, Arc<App>)| !app.progress.done.load(Relaxed);
        let tenant = self.apps.iter().find(waits);
        tenant.map_or(super::DEFAULT_TENANT, |(tenant, _)| tenant)
    }

    /// Those of all tenants.
    fn metrics(&self) -> Response {
        let mut body = match &self.apps[..] {
            [(_, only)] => status::metrics_of(only),
            all => {
                let texts = all
                    .iter()
                    .map(|(tenant, app)| (&**tenant, status::metrics_of(app)));
                metrics::of_tenants(&texts.collect::<Vec<_>>())
            }
        };
        let mut own = metrics::Text::default();
        let refused = self.refused.all();
        let help = "Requests without the right to what they asked for.";
        own.labelled("pilotlight_access_refused_total", help, "reason", &refused);
        if let Some(audit) = &self.audit {
            let help = "Lines of the audit that are in no file.";
            own.value(
                "counter",
                "pilotlight_audit_lost_total",
                help,
                audit.lost() as f64,
            );
        }
        body.push_str(&own.finish());
        status::prometheus(body)
    }

    fn note(
        &self,
        method: &Method,
        uri: &Uri,
        peer: Option<String>,
        grant: &Grant<'_>,
        status: StatusCode,
    ) {
        let reads = grant.needed == Some(Scope::Read);
        if let (Some(audit), true) = (&self.audit, reads) {
            audit.note(json!({
                "time_ns": self.env.now_ns(),
                "who": grant.who,
                "tenant": grant.tenant,
                "peer": peer,
                "method": method.as_str(),
                "path": uri.path(),
                "query": uri.query(),
                "status": status.as_u16(),
            }));
        }
    }
}

/// A browser sends a password by itself, also for a page from elsewhere that posts something.
fn same_site(method: &Method, headers: &HeaderMap) -> Result<(), Denied> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let by_itself = text(header::AUTHORIZATION).is_some_and(|value| {
        value
            .get(..6)
            .is_some_and(|s| s.eq_ignore_ascii_case("basic "))
    });
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else {
        return Ok(());
    };
    let from = origin.split_once("://").map_or(origin, |(_, host)| host);
    if by_itself && !reads && !from.eq_ignore_ascii_case(host) {
        return Err(Denied {
            status: StatusCode::FORBIDDEN,
            message: format!("a page of {origin} cannot use the password of {host}"),
            reason: "origin",
        });
    }
    Ok(())
}

fn refusal(denied: Denied) -> Response {
    let challenge = denied.status == StatusCode::UNAUTHORIZED;
    let mut answer = ApiError::new(denied.status, denied.message).into_response();
    if challenge {
        let headers = answer.headers_mut();
        for value in ["Basic realm=\"pilotlight\", charset=\"UTF-8\"", "Bearer"] {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
    }
    answer
}
