//! The cluster map, who keeps it, and where blocks go.
