CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE jobs (
	num INTEGER PRIMARY KEY,
	overrides TEXT NOT NULL,      -- JSON list, as in .hydra/overrides.yaml
	params TEXT NOT NULL,         -- JSON list: the swept values, in the order of the sweep's dimensions
	dir TEXT NOT NULL UNIQUE,     -- run folder, relative to the sweep's
	fingerprint TEXT NOT NULL,    -- of the composed configuration that the job runs with
	generation INTEGER NOT NULL,  -- of the configuration files: 1, and one more for each change that was accepted
	state TEXT NOT NULL,          -- queued running done failed pruned lost skipped
	attempts INTEGER NOT NULL,    -- tries that have begun
	failures INTEGER NOT NULL,    -- tries that failed, since the job was last asked for
	exit_code INTEGER,            -- of the last try that has ended
	cause TEXT NOT NULL,          -- of a failure
	tail TEXT NOT NULL,           -- JSON list: last lines of the log
	objectives TEXT NOT NULL,     -- JSON list of {name, value, minimize}, null when unknown; "nan", "inf", "-inf" as text
	violation REAL NOT NULL,      -- of the constraints, 0 = feasible
	metrics TEXT NOT NULL,        -- JSON object: metrics of the best checkpoint
	epochs INTEGER NOT NULL,      -- epochs that were run
	seconds REAL NOT NULL,        -- wall time of all tries
	arm TEXT NOT NULL,            -- of a study; '' in other sweeps
	parent INTEGER                -- job that must be done before this one starts, from its checkpoint
);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE TABLE attempts (
	num INTEGER NOT NULL REFERENCES jobs (num),
	try INTEGER NOT NULL,
	state TEXT NOT NULL,
	launcher_id TEXT NOT NULL,    -- process number or Slurm's ARRAY_TASK
	host TEXT NOT NULL,
	started TEXT NOT NULL,
	ended TEXT NOT NULL,
	exit_code INTEGER NOT NULL,
	cause TEXT NOT NULL,
	resumed INTEGER NOT NULL,
	PRIMARY KEY (num, try)
);
