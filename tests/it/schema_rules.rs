//! Rules that every object of the schema keeps.

use crate::fixtures::postgres::TestDb;

/// Runs a query that finds offenders; there may be none.
async fn nothing_of(sql: &str) {
    let db = TestDb::new().await;
    let rows = db.connect().await.query(sql, &[]).await.unwrap();
    let found: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn every_function_has_a_comment() {
    nothing_of(
        "select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace = 'postrider'::regnamespace
           and obj_description(p.oid, 'pg_proc') is null order by 1",
    )
    .await;
}

#[tokio::test]
async fn nothing_is_open_to_everyone() {
    nothing_of(
        "select format('%s: %s', object, acl.privilege_type) from (
             select oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
             from pg_proc where pronamespace = 'postrider'::regnamespace
             union all
             select oid::regclass::text, coalesce(relacl, acldefault('r', relowner))
             from pg_class where relnamespace = 'postrider'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S')
             union all
             select nspname, coalesce(nspacl, acldefault('n', nspowner))
             from pg_namespace where nspname = 'postrider') as objects (object, rights)
         cross join aclexplode(rights) acl where acl.grantee = 0 order by 1",
    )
    .await;
}

#[tokio::test]
async fn every_table_and_view_has_a_comment() {
    nothing_of(
        "select c.oid::regclass::text from pg_class c
         where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
           and not c.relispartition and obj_description(c.oid, 'pg_class') is null order by 1",
    )
    .await;
}

#[tokio::test]
async fn every_column_of_a_table_has_a_comment() {
    nothing_of(
        "select format('%s.%s', c.oid::regclass, a.attname) from pg_class c
         join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p')
           and not c.relispartition and col_description(c.oid, a.attnum) is null order by 1",
    )
    .await;
}

#[tokio::test]
async fn definer_functions_pin_their_search_path() {
    nothing_of(
        "select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace = 'postrider'::regnamespace and p.prosecdef
           and not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp'] order by 1",
    )
    .await;
}

#[tokio::test]
async fn no_key_points_where_it_would_block() {
    nothing_of(
        "select format('%s: %s', conrelid::regclass, conname) from pg_constraint
         where contype = 'f' and connamespace = 'postrider'::regnamespace
           and (confrelid in (select partrelid from pg_partitioned_table)
                or confrelid = to_regclass('postrider.endpoint_state')
                or conrelid in (to_regclass('postrider.events'), to_regclass('postrider.outbox'),
                                to_regclass('postrider.pending'))
                   and confrelid = to_regclass('postrider.endpoints')) order by 1",
    )
    .await;
}
