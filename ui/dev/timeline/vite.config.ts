/** Builds the timeline alone, for measuring: into node_modules, so that no package has it. */
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

export default defineConfig({
  root: import.meta.dirname,
  base: './',
  plugins: [react()],
  build: { target: 'es2022', modulePreload: { polyfill: false }, outDir: '../../node_modules/.cache/frames', emptyOutDir: true },
})
