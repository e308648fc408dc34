-- The moment of the run is 2026-02-01 12:00 UTC. effective has what the describe of each broker and topic would answer.
WITH counted AS (
  SELECT entity_type, config_key, state, value, fingerprint, count(*) AS entities, count(*) FILTER (own) AS own,
    list(entity_id ORDER BY entity_id) AS ids
  FROM effective GROUP BY ALL
),
ranked AS (
  SELECT *,
    row_number() OVER (
      PARTITION BY entity_type, config_key
      ORDER BY entities DESC, state, value NULLS FIRST, fingerprint NULLS FIRST) AS rank,
    sum(entities) OVER (PARTITION BY entity_type, config_key) AS total
  FROM counted
)
SELECT entity_type, config_key, rank, state, value, fingerprint, entities, own, total,
  CASE WHEN rank = 1 THEN [] ELSE ids[:20] END AS examples,
  CASE WHEN entity_type = 'topic' THEN (
    SELECT max(polled_at) FROM topics WHERE polled_at < TIMESTAMPTZ '2026-02-01 11:00:00+00'
  ) END AS topics_as_of
FROM ranked
