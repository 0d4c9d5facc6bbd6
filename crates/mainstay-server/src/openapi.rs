//! The description of the API, made from the handlers themselves.

use crate::access::Rule;
use axum::http::StatusCode;
use mainstay_api::Problem;
use mainstay_api::problem::MEDIA_TYPE;
use utoipa::PartialSchema;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
};

const SCHEME: &str = "token";
const PROBLEM: &str = "Problem";

/// The description of an API without routes.
pub(crate) fn base() -> OpenApi {
    let mut components = Components::new();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `mainstay token create`. Roles: reader, operator, admin; worker and publisher, for what their scope names."));
    components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme.build()));
    components.schemas.insert(PROBLEM.to_owned(), Problem::schema());
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(PROBLEM)));
    let response = ResponseBuilder::new()
        .description("What went wrong; `code` tells which kind.")
        .content(MEDIA_TYPE, content.build());
    components.responses.insert(PROBLEM.to_owned(), RefOr::T(response.build()));
    let info = InfoBuilder::new()
        .title("Mainstay")
        .description(Some("The durable back end of an event-sourced application."))
        .version(env!("CARGO_PKG_VERSION"));
    OpenApiBuilder::new().info(info).components(Some(components)).build()
}

/// Adds what holds for every operation: its permission, and how it says that something went wrong.
pub(crate) fn complete(operation: &mut Operation, rule: Rule) {
    let extension = ExtensionsBuilder::new().add("x-permission", rule.permission.name());
    let extension = match rule.scoped {
        Some(role) => extension.add("x-scope", role.name()),
        None => extension,
    };
    operation.extensions.get_or_insert_default().merge(extension.build());
    if rule.permission.role().is_some() {
        operation.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    }
    let problem = RefOr::Ref(Ref::from_response_name(PROBLEM));
    for (status, response) in &mut operation.responses.responses {
        // OpenAPI requires a description of every response; the status text is the default.
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            let status = status.parse().ok().and_then(|status| StatusCode::from_u16(status).ok());
            response.description =
                status.and_then(|status| status.canonical_reason()).unwrap_or("Done").to_owned();
        }
    }
    operation.responses.responses.entry("default".to_owned()).or_insert(problem);
}
