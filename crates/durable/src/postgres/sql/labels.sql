-- The index of labels. It has a row for each label of a timer, but not for the labels of its next
-- delivery. The triggers write it, whatever changes the timer, and cost nothing for a timer without
-- labels. The labels themselves are a column of the timer, so no query for an id reads the index.

-- Creates the table unless it exists. The roles that may use the dead letters may use it.
DO $$ BEGIN
  IF to_regclass('tb.labels') IS NULL THEN
    CREATE TABLE tb.labels (
      label text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      PRIMARY KEY (label, id)
    ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02,
      autovacuum_analyze_scale_factor = 0.02);
    PERFORM tb.grant_like_letters('tb.labels');
  END IF;
END $$;

-- Writes the labels of a timer into their index. It is executed with the rights of the owner of the
-- store, because a role may change timers without rights for the index.
CREATE OR REPLACE FUNCTION tb.index_labels() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    DELETE FROM tb.labels WHERE label = ANY (OLD.labels) AND id = OLD.id;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO tb.labels SELECT unnest(NEW.labels), NEW.id ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

REVOKE ALL ON FUNCTION tb.index_labels FROM PUBLIC;

DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
    WHERE tgrelid = 'tb.timers'::regclass AND tgname = 'labels_inserted')
  THEN
    CREATE TRIGGER labels_inserted AFTER INSERT ON tb.timers FOR EACH ROW
      WHEN (NEW.labels IS NOT NULL) EXECUTE FUNCTION tb.index_labels();
    CREATE TRIGGER labels_updated AFTER UPDATE OF labels ON tb.timers FOR EACH ROW
      WHEN (OLD.labels IS DISTINCT FROM NEW.labels) EXECUTE FUNCTION tb.index_labels();
    CREATE TRIGGER labels_deleted AFTER DELETE ON tb.timers FOR EACH ROW
      WHEN (OLD.labels IS NOT NULL) EXECUTE FUNCTION tb.index_labels();
  END IF;
END $$;

-- Returns the labels in an array of texts in JSON, each once and in order, or NULL if there are none.
CREATE OR REPLACE FUNCTION tb.labels_of(given jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
  SELECT nullif(ARRAY(SELECT DISTINCT label COLLATE "C" FROM jsonb_array_elements_text(nullif(given, 'null')) AS label
    ORDER BY 1), '{}')
$$;
