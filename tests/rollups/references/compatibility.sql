WITH clients AS (
  SELECT entity_id, software_name, software_version, min(seen_at) AS first_seen, max(seen_at) AS last_seen,
    count(DISTINCT supported_configs) AS sets
  FROM standing GROUP BY ALL
),
-- How many of a client's different sets have each config: at least one, or all of them.
configs AS (
  SELECT entity_id, software_name, software_version, config, count(*) AS sets_with_it
  FROM (
    SELECT DISTINCT entity_id, software_name, software_version, supported_configs, unnest(supported_configs) AS config
    FROM standing
  )
  GROUP BY ALL
),
running AS (
  SELECT entity_id, software_name, software_version, count(*) AS instances, min(applied_revision) AS applied_revision
  FROM reports GROUP BY ALL
),
refusals AS (
  SELECT DISTINCT entity_id, software_name, software_version, unnest(refused_configs) AS refused FROM reports
)
SELECT
  clients.entity_id, clients.software_name, clients.software_version,
  coalesce(list(config ORDER BY config) FILTER (config IS NOT NULL), []) AS supported_configs,
  coalesce(list(config ORDER BY config) FILTER (sets_with_it = sets), []) AS common_configs,
  first_seen, last_seen,
  coalesce(instances, 0) AS instances, applied_revision,
  list_sort(ARRAY(
    SELECT refused FROM refusals
    WHERE (refusals.entity_id, refusals.software_name, refusals.software_version)
      = (clients.entity_id, clients.software_name, clients.software_version)
  )) AS refused_configs
FROM clients
LEFT JOIN configs USING (entity_id, software_name, software_version)
LEFT JOIN running USING (entity_id, software_name, software_version)
GROUP BY ALL
