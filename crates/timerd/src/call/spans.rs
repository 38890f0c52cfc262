//! [`Spans`], which export a span of OpenTelemetry for each call of a webhook. Without the feature
//! `otlp` they do nothing.

#![forbid(unsafe_code)]

#[cfg(not(feature = "otlp"))]
pub(crate) use disabled::Spans;
#[cfg(feature = "otlp")]
pub(crate) use enabled::Spans;

#[cfg(feature = "otlp")]
mod enabled {
    use crate::error::StartError;
    use http::StatusCode;
    use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
    use opentelemetry::trace::{
        SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider,
    };
    use opentelemetry::{Context, KeyValue};
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use std::env::{var, var_os};
    use std::time::Duration;
    use tourbillon_durable::{Delivery, Verdict};

    /// The variables that name a collector. Without them no span is exported.
    const COLLECTOR: [&str; 2] =
        ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

    /// How long a stopping service waits for the collector.
    const END: Duration = Duration::from_secs(1);

    /// The exporter of spans.
    #[derive(Clone)]
    pub(crate) struct Spans(Option<SdkTracerProvider>);

    /// The span of a call. It ends when it is dropped, if the call is given up.
    pub(crate) struct CallSpan(Option<Context>);

    /// The headers of a timer, which carry the context of its trace.
    struct Carrier<'a>(&'a mut Vec<(String, String)>);

    impl Spans {
        /// Creates an exporter as the variables `OTEL_…` of the specification demand.
        pub(crate) fn from_environment() -> Result<Self, StartError> {
            if COLLECTOR.iter().all(|name| var_os(name).is_none()) {
                return Ok(Self(None));
            }
            let exporter = SpanExporter::builder().with_http().build();
            let name = var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "timerd".to_owned());
            let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
            let resource = Resource::builder().with_service_name(name).with_attribute(version);
            let provider = SdkTracerProvider::builder()
                .with_batch_exporter(exporter.map_err(StartError::Spans)?)
                .with_resource(resource.build());
            Ok(Self(Some(provider.build())))
        }

        /// Begins the span of a call, within the trace of its timer. The receiver gets the span as
        /// the parent of its own spans.
        pub(crate) fn begin(&self, delivery: &mut Delivery) -> CallSpan {
            let Some(provider) = &self.0 else { return CallSpan(None) };
            let propagator = TraceContextPropagator::new();
            let parent =
                propagator.extract_with_context(&Context::new(), &Carrier(&mut delivery.headers));
            let attributes = [
                KeyValue::new("timer.id", delivery.id.clone()),
                KeyValue::new("timer.attempt", i64::from(delivery.attempt)),
            ];
            let span = SpanBuilder::from_name("call")
                .with_kind(SpanKind::Client)
                .with_attributes(attributes);
            let span = provider.tracer("timerd").build_with_context(span, &parent);
            let context = parent.with_span(span);
            propagator.inject_context(&context, &mut Carrier(&mut delivery.headers));
            CallSpan(Some(context))
        }

        /// Exports the spans that have ended.
        pub(crate) async fn end(&self) {
            let Some(provider) = self.0.clone() else { return };
            let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(END));
            if let Ok(Err(error)) = ended.await {
                tracing::warn!(%error, "some spans were not exported");
            }
        }
    }

    impl CallSpan {
        /// Ends the span with the outcome of the call.
        pub(crate) fn end(self, verdict: &Verdict, status: Option<StatusCode>) {
            let Some(context) = self.0 else { return };
            let span = context.span();
            if let Some(status) = status {
                let status = i64::from(status.as_u16());
                span.set_attribute(KeyValue::new("http.response.status_code", status));
            }
            if !matches!(verdict, Verdict::Done) {
                span.set_status(Status::error(format!("{verdict:?}")));
            }
            span.end();
        }
    }

    impl Extractor for Carrier<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            let found = self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, value)| &**value)
        }

        fn keys(&self) -> Vec<&str> {
            self.0.iter().map(|(name, _)| &**name).collect()
        }
    }

    impl Injector for Carrier<'_> {
        fn set(&mut self, key: &str, value: String) {
            self.0.retain(|(name, _)| !name.eq_ignore_ascii_case(key));
            if !value.is_empty() {
                self.0.push((key.to_owned(), value));
            }
        }
    }
}

#[cfg(not(feature = "otlp"))]
mod disabled {
    use crate::error::StartError;
    use http::StatusCode;
    use tourbillon_durable::{Delivery, Verdict};

    #[derive(Clone)]
    pub(crate) struct Spans;

    pub(crate) struct CallSpan;

    impl Spans {
        pub(crate) fn from_environment() -> Result<Self, StartError> {
            Ok(Self)
        }

        pub(crate) fn begin(&self, _: &mut Delivery) -> CallSpan {
            CallSpan
        }

        pub(crate) async fn end(&self) {}
    }

    impl CallSpan {
        pub(crate) fn end(self, _: &Verdict, _: Option<StatusCode>) {}
    }
}
