//! The description of the API, made from the handlers themselves.

use crate::access::Permission;
use crate::problem;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

const SCHEME: &str = "token";
const PROBLEM: &str = "Problem";

/// What goes wrong, as RFC 9457 has it. Further members tell more: `field`, `maxBytes`, the current state.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its description is used")]
struct Document {
    /// Where this kind of problem is explained.
    r#type: String,
    /// What kind of problem it is, in a sentence.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What is the matter this time.
    detail: String,
    /// The stable name of this kind of problem.
    code: String,
    /// The field, parameter or part of the path that is wrong.
    field: Option<String>,
}

/// The description of an API without routes.
pub(crate) fn base() -> OpenApi {
    let mut components = Components::new();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `mainstay token create`. Roles: reader, operator, admin."));
    components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme.build()));
    components.schemas.insert(PROBLEM.to_owned(), Document::schema());
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(PROBLEM)));
    let response = ResponseBuilder::new()
        .description("What went wrong; `code` tells which kind.")
        .content(problem::MEDIA_TYPE, content.build());
    components.responses.insert(PROBLEM.to_owned(), RefOr::T(response.build()));
    let info = InfoBuilder::new()
        .title("Mainstay")
        .description(Some("The durable back end of an event-sourced application."))
        .version(env!("CARGO_PKG_VERSION"));
    OpenApiBuilder::new().info(info).components(Some(components)).build()
}

/// Adds what holds for every operation: its permission, and how it says that something went wrong.
pub(crate) fn complete(operation: &mut Operation, permission: Permission) {
    let extension = ExtensionsBuilder::new().add("x-permission", permission.name()).build();
    operation.extensions.get_or_insert_default().merge(extension);
    if permission.role().is_some() {
        operation.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    }
    let problem = RefOr::Ref(Ref::from_response_name(PROBLEM));
    operation.responses.responses.entry("default".to_owned()).or_insert(problem);
}
