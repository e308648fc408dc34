-- A change of two keys counts in two rows, one of no key under the empty key. So does a refused attempt.
WITH altered AS (
  SELECT
    make_timestamp(epoch_us(created_at))::DATE AS day,
    principal, kind, path, created_at, revision, outcome, before, after,
    CASE WHEN outcome <> 'rejected' THEN 0 WHEN error_code IS NULL THEN -1 ELSE error_code END AS error_code,
    array_to_string([split_part(part, '=', 1) FOR part IN string_split(entity_id, ',')], ',') AS entity_type,
    unnest(CASE WHEN len(keys) = 0 OR is_move THEN [''] ELSE keys END) AS config_key
  FROM (SELECT *, coalesce(ops ->> '$[0].op' IN ('MOVE', 'DISCARD'), false) AS is_move FROM changes)
  -- Of the two rows of a move to the other tree, the one that removes the keys.
  WHERE NOT (is_move AND cardinality(after) > cardinality(before))
),
-- What the key was on either side: absence is a state as well, and a value that is not told is none.
states AS (
  SELECT *,
    CASE
      WHEN config_key = '' THEN NULL
      WHEN NOT list_contains(map_keys(before), config_key) THEN ['absent']
      WHEN before[config_key] IS NOT NULL THEN ['value', before[config_key]]
    END AS was,
    CASE
      WHEN config_key = '' THEN NULL
      WHEN NOT list_contains(map_keys(after), config_key) THEN ['absent']
      WHEN after[config_key] IS NOT NULL THEN ['value', after[config_key]]
    END AS became
  FROM altered
),
numbered AS (SELECT *, row_number() OVER () AS number FROM states),
reverting AS (
  SELECT DISTINCT later.number
  FROM numbered later
  JOIN numbered earlier
    ON earlier.path = later.path AND earlier.config_key = later.config_key AND earlier.was = later.became
  WHERE earlier.outcome = 'committed' AND later.outcome = 'committed'
    AND earlier.revision < later.revision
    -- A reload of a file sets nothing back, and is not set back.
    AND earlier.was IS DISTINCT FROM earlier.became AND later.was IS DISTINCT FROM later.became
    AND earlier.created_at >= later.created_at - INTERVAL 7 DAY
),
-- A name wins over a pattern, and the first pattern over those below; teams are numbered so, the default last.
belonging AS (
  SELECT principal, arg_min(team, rank) AS team
  FROM (SELECT principal FROM numbered UNION SELECT principal FROM refused_attempts) JOIN teams
    ON regexp_full_match(principal, array_to_string([regexp_escape(part) FOR part IN string_split(name, '*')], '.*'), 's')
  GROUP BY principal
),
counted AS (
  SELECT
    day, principal, kind, entity_type, config_key, error_code,
    count(*) FILTER (outcome = 'committed') AS committed_keys,
    count(*) FILTER (outcome = 'rejected') AS rejected_keys,
    count(*) FILTER (outcome = 'open') AS open_keys,
    count(reverting.number) AS reverted_keys
  FROM numbered LEFT JOIN reverting USING (number)
  GROUP BY ALL
  UNION ALL
  SELECT
    make_timestamp(epoch_us(created_at))::DATE, principal, 'change',
    array_to_string([split_part(part, '=', 1) FOR part IN string_split(coalesce(entity_id, ''), ',')], ','),
    unnest(CASE WHEN len(keys) = 0 THEN [''] ELSE keys END), error_code, 0, "count", 0, 0
  FROM refused_attempts
)
SELECT
  day, principal, kind, entity_type, config_key, error_code, team,
  sum(committed_keys)::BIGINT AS committed_keys, sum(rejected_keys)::BIGINT AS rejected_keys,
  sum(open_keys)::BIGINT AS open_keys, sum(reverted_keys)::BIGINT AS reverted_keys
FROM counted LEFT JOIN belonging USING (principal)
GROUP BY ALL
