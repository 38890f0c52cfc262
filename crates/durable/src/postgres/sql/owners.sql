-- Returns an object of the schema whose code the connected role must not execute, with the role that
-- can change it, or nothing. The functions of a store are called by name, so a role that can replace
-- one of them, or add a better match, acts with the rights of its callers.
--
-- Trusted are the connected role, the roles that it is a member of, superusers, and the role that the
-- options name. A membership that a role has granted in itself, which servers before PostgreSQL 16
-- allow, is none. A role that is not trusted must own neither the schema nor anything in it, and must
-- not have the right to add objects to it or triggers to its tables. Only trusted roles can then
-- change it after this query.
--
-- Each operator has operands of exactly the types that the system's has, so that no other one matches
-- better, whatever the search path is.

WITH RECURSIVE trusted (role) AS (
  SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user
  UNION
  SELECT membership.roleid FROM trusted
    JOIN pg_catalog.pg_auth_members AS membership ON membership.member = trusted.role
    WHERE membership.grantor <> membership.roleid
      AND coalesce((pg_catalog.to_jsonb(membership) ->> 'set_option'::text)::boolean, true)
),
space AS (
  SELECT oid, nspowner, nspacl FROM pg_catalog.pg_namespace WHERE nspname = 'tb_schema'::name
),
holders (object, role) AS (
  SELECT 'the schema "tb_schema"', nspowner FROM space
  UNION ALL
  -- An object without this row belongs to the first superuser.
  SELECT pg_catalog.pg_describe_object(owner.classid, owner.objid, 0), owner.refobjid FROM space
    JOIN pg_catalog.pg_depend AS inside ON inside.refobjid = space.oid
      AND inside.refclassid = 'pg_catalog.pg_namespace'::regclass::oid
    JOIN pg_catalog.pg_shdepend AS owner ON owner.classid = inside.classid
      AND owner.objid = inside.objid AND owner.deptype = 'o'::"char"
      AND owner.dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  UNION ALL
  SELECT 'the right to create objects in "tb_schema"', granted.grantee
    FROM space, pg_catalog.aclexplode(nspacl) AS granted
    WHERE granted.privilege_type = 'CREATE'::text
  UNION ALL
  SELECT pg_catalog.concat('the right to add triggers to ', relname), granted.grantee FROM space
    JOIN pg_catalog.pg_class ON relnamespace = space.oid, pg_catalog.aclexplode(relacl) AS granted
    WHERE granted.privilege_type = 'TRIGGER'::text
  UNION ALL
  SELECT pg_catalog.pg_describe_object('pg_catalog.pg_proc'::regclass::oid, called.oid, 0),
      called.proowner
    FROM space JOIN pg_catalog.pg_class AS class ON class.relnamespace = space.oid
    JOIN pg_catalog.pg_trigger AS trigger ON trigger.tgrelid = class.oid
    JOIN pg_catalog.pg_proc AS called ON called.oid = trigger.tgfoid
)
SELECT object, coalesce(holder.rolname::text, 'PUBLIC') AS role FROM holders
LEFT JOIN pg_catalog.pg_roles AS holder ON holder.oid = holders.role
WHERE holder.rolsuper IS NOT true AND NOT EXISTS (SELECT FROM trusted WHERE role = holders.role)
  AND (holder.rolname = tb_owner::name) IS NOT true
LIMIT 1
