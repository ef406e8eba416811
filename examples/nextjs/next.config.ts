import type { NextConfig } from 'next'

// The inbox uses files of its package, so the package stays outside of the bundles.
const config: NextConfig = { serverExternalPackages: ['fleethook'] }

export default config
