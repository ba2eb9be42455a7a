import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  // the server may serve the dashboard below any prefix: <base> decides
  base: './',
  plugins: [react()],
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { '/api': 'http://127.0.0.1:5180' } },
  test: { environment: 'node', include: ['src/**/*.test.ts'] },
})
