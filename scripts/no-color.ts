// Preloaded by `npm start`. NO_COLOR wins: when FORCE_COLOR is set as well, Node would ignore NO_COLOR and print a warning
// while it loads modules.
if (process.env['NO_COLOR']) delete process.env['FORCE_COLOR']
