"""Raw notes of a job: fetched from servers, kept on disk, measured, and rendered again where need be."""
