//! Ids that callers choose are unique within a tenant (decisions C49, C62): the tenant is part of every such key.
//!
//! A caller of a tenant means its own row. A caller of the deployment means the row without a tenant, or else the only
//! one; when several tenants have one, the caller has to name the tenant.

use crate::error::Result;

/// The tenant as a column has it: empty for none.
pub(crate) fn column(tenant: Option<&str>) -> &str {
    tenant.unwrap_or_default()
}

/// The rows that a choice needs: the one without a tenant is the first in the order of tenants.
pub(crate) const FIRST_TWO: &str = "ORDER BY tenant LIMIT 2";

/// The row that an id means for a caller of the deployment, of the first rows in the order of their tenants.
pub(crate) fn chosen<T>(
    rows: Vec<T>,
    tenant_of: impl Fn(&T) -> &str,
    what: &'static str,
    id: &str,
) -> Result<Option<T>> {
    let count = rows.len();
    let mut rows = rows.into_iter();
    match rows.next() {
        Some(first) if count > 1 && !tenant_of(&first).is_empty() => {
            Err(mainstay_events::Error::SeveralTenants { what, id: id.to_owned() }.into())
        }
        first => Ok(first),
    }
}

/// A function of PostgreSQL for one migration: the tenant in a JSON document. Escapes that PostgreSQL cannot hold are
/// replaced before, and a document that it cannot read has no tenant.
pub(crate) const CREATE_TENANT_OF: &str = r#"CREATE FUNCTION mainstay_tenant_of(document TEXT) RETURNS TEXT LANGUAGE plpgsql AS $$
    BEGIN RETURN coalesce(regexp_replace(document, '\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\\u0020', 'g')::json
        ->> 'tenantId', '');
    EXCEPTION WHEN OTHERS THEN RETURN ''; END $$"#;

/// Removes what [`CREATE_TENANT_OF`] made.
pub(crate) const DROP_TENANT_OF: &str = "DROP FUNCTION mainstay_tenant_of(TEXT)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_without_a_tenant_is_meant_or_else_the_only_one() {
        let chosen =
            |rows: &[&'static str]| chosen(rows.to_vec(), |row| row, "id", "1").map_err(|error| error.code());
        assert_eq!(chosen(&[]), Ok(None));
        assert_eq!(chosen(&["acme"]), Ok(Some("acme")));
        assert_eq!(chosen(&["", "acme"]), Ok(Some("")));
        assert_eq!(chosen(&["acme", "globex"]), Err("TENANT_REQUIRED"));
    }
}
