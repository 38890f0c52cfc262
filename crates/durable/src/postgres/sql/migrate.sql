-- Creates a store or renews its functions, in one transaction. Does nothing if the store has these
-- functions or newer ones.
--
-- Two roles cannot create it at once, because the schema, or else the table `store`, enters the
-- catalogue only once. The one that renews the functions locks that table, which needs rights for it,
-- and then reads the revision.
--
-- A lock that waits for a long transaction makes all others wait behind it, so this gives up soon. The
-- program tries it again.

BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '200ms';
DO $migrate$
DECLARE
  foreign_object text;
  foreign_role text;
  owner text;
  stored_layout integer;
  stored_revision integer;
  exposed regprocedure;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tb_schema') THEN
    CREATE SCHEMA "tb_schema";
  END IF;
  SELECT object, role INTO foreign_object, foreign_role FROM (tb_owners) AS found;
  IF FOUND THEN
    RAISE EXCEPTION '% belongs to %', foreign_object, foreign_role USING ERRCODE = 'TB001';
  END IF;
  -- All objects of a store belong to one role.
  SELECT pg_get_userbyid(relowner) INTO owner FROM pg_class
    WHERE relname = 'store' AND relnamespace = '"tb_schema"'::regnamespace;
  IF FOUND THEN
    PERFORM set_config('role', owner, true);
  ELSE
    SELECT pg_get_userbyid(nspowner) INTO owner FROM pg_namespace
      WHERE nspname = 'tb_schema' AND pg_has_role(nspowner, 'MEMBER');
    IF FOUND THEN PERFORM set_config('role', owner, true); END IF;
    EXECUTE $tables$
tb_tables
    $tables$;
    INSERT INTO tb.store VALUES (true, tb_layout, 0, false);
  END IF;
  LOCK TABLE tb.store IN SHARE UPDATE EXCLUSIVE MODE;
  SELECT layout, revision INTO stored_layout, stored_revision FROM tb.store;
  IF stored_layout <> tb_layout THEN
    RAISE EXCEPTION 'the store has layout % (this version supports tb_layout)', stored_layout
      USING ERRCODE = 'TB002';
  END IF;
  IF stored_revision < tb_revision THEN
    EXECUTE $functions$
tb_functions
    $functions$;
    UPDATE tb.store SET revision = tb_revision;
  END IF;
  -- A dump that was restored without privileges lacks what the functions revoke.
  FOR exposed IN tb_exposed LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', exposed);
  END LOOP;
END $migrate$;
COMMIT;
