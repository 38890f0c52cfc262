//! Mounting the page: its routes, and what all its responses have in common.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::pages;
use crate::site::TimersWeb;
use crate::view::frame::{Frame, Menu, Page, failure};
use crate::visit::Visit;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use maud::{PreEscaped, html};
use std::sync::Arc;

/// The resources that a page may load, and the targets of its forms.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// The same with the script, which asks for the page again.
const POLICY_OF_SCRIPT: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
                                connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
                                base-uri 'none'";

/// The maximum length of a form in bytes.
const MAX_FORM_BYTES: usize = 65_536;

impl TimersWeb {
    /// Returns the routes of the page. All links are relative, so they work below any prefix, even
    /// if a proxy removes it.
    ///
    /// `timers/ID` and `dead-letters/NUMBER` lead to the page of a timer and of a dead letter, for
    /// links in messages.
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        self.pages().merge(self.files())
    }

    /// Returns the routes of [`router`](Self::router) without the [files](Self::files) that pages
    /// load.
    pub fn pages<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        self.dressed(pages::routes(&Arc::new(self.clone())))
    }

    /// Returns the routes of the files that pages load. If the host shows a [page](Self::page) of
    /// its own to users without a session, put its authentication around the
    /// [pages](Self::pages), but not around these files.
    pub fn files<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        self.dressed(pages::files())
    }

    /// Returns a page with content of the host in the same design, such as a login form. `main` is
    /// HTML and is not escaped. `root` is the address of the root of the page and ends with a
    /// slash. It is empty for a page at the same level as the others.
    pub fn page(&self, root: &str, title: &str, main: impl Into<String>) -> Response {
        let frame = Frame { site: self, root, title };
        let body = html! {
            header.top { (frame.brand()) }
            main #main { (PreEscaped(main.into())) }
        };
        let mut response = Html(frame.around(&body).into_string()).into_response();
        self.protect(&mut response);
        response
    }

    /// Returns a page with content of the host in the frame of the other pages, for a request to an
    /// address of the host one level below the root, such as a [link](Self::link). `main` is HTML
    /// and is not escaped. A form in it carries the token of the session, if the host uses one.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::Router;
    /// use axum::extract::{Request, State};
    /// use axum::response::Response;
    /// use axum::routing::get;
    /// use timers_web::TimersWeb;
    ///
    /// async fn receivers(State(web): State<TimersWeb>, request: Request) -> Response {
    ///     let (parts, _) = request.into_parts();
    ///     web.page_in_menu(&parts, "Receivers", "<h1>Receivers</h1>")
    /// }
    ///
    /// fn app(web: TimersWeb) -> Router {
    ///     let web = web.link("receivers", "Receivers");
    ///     Router::new().route("/receivers", get(receivers)).merge(web.router()).with_state(web)
    /// }
    /// ```
    pub fn page_in_menu(&self, parts: &Parts, title: &str, main: impl Into<String>) -> Response {
        let visit = Visit::of(Arc::new(self.clone()), parts);
        let address = parts.uri.path().rsplit('/').next().unwrap_or_default();
        let page = Page { title, entry: Menu::Host(address), is_live: false };
        let shown = page.with(&visit, &PreEscaped(main.into()));
        let mut response = Html(shown.into_string()).into_response();
        self.protect(&mut response);
        response
    }

    fn dressed<S>(&self, routes: Router<Arc<Self>>) -> Router<S> {
        let site = Arc::new(self.clone());
        let routes = routes.layer(DefaultBodyLimit::max(MAX_FORM_BYTES));
        routes.layer(from_fn_with_state(Arc::clone(&site), dress)).with_state(site)
    }

    /// Adds the headers that keep a page from being framed, cached or changed.
    fn protect(&self, response: &mut Response) {
        let policy = if self.has_script { POLICY_OF_SCRIPT } else { POLICY };
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Without a referrer, a browser would not say where a form comes from.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
}

/// Shows failures as pages, and protects all responses.
async fn dress(visit: Visit, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<Failure>() {
        let page = failure(&visit, &error);
        response = (error.status, Html(page.into_string())).into_response();
    }
    visit.site.protect(&mut response);
    response
}
