-- The PostgreSQL of compose.yaml runs this once, on an empty volume. The service owns its database and is no superuser. The
-- superuser has no password, so that it logs in from within the container only: docker compose exec postgres psql --username postgres
\getenv password POSTGRES_PASSWORD
CREATE ROLE survey_auth LOGIN PASSWORD :'password';
CREATE DATABASE survey_auth OWNER survey_auth;
ALTER ROLE postgres PASSWORD NULL;
